"""The keys of the page, and the dialog that lists them."""

from __future__ import annotations

from nicegui import ui

KEYS = {
    "?": "these keys",
    "j, k": "next and previous job; Enter in the field: the first that it finds",
    "e": "why is the job slow?",
    "w": "what if the chosen switch or cable fails?",
    "Escape": "choose nothing",
    "d": "dark or light",
    "p": "print",
    "Tab": "through all fields and buttons",
}


def show_keys() -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        for key, what in KEYS.items():
            ui.label(f"{key}: {what}")
        ui.button("Close", on_click=dialog.close).props("no-caps")
    dialog.on("hide", dialog.delete)
