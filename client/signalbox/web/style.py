"""Style sheet and scripts for the browser, in addition to NiceGUI's front end."""

from __future__ import annotations

PRIMARY = "#1f5a99"
"""Colour of the header and the buttons. White text on this colour has a contrast of 7 to 1."""

STYLE = """
.said, .banner { overflow-wrap: anywhere }
.banner { border-left: 6px solid #d9480f; padding: 4px 10px; font-weight: bold }
.two-to-one, .one-to-one { display: grid; width: 100%; gap: 1rem; align-items: start }
.two-to-one > *, .one-to-one > * { min-width: 0 }
@media (min-width: 900px) {
  .two-to-one { grid-template-columns: 2fr 1fr }
  .one-to-one { grid-template-columns: 1fr 1fr }
}
@media (max-width: 599px) {
  .two-to-one > * { overflow-x: auto }
  .chart-fabric { min-width: 600px }
}
.q-table__bottom-nodata-icon { display: none }
.chosen { font-weight: bold; text-decoration: underline }
@media print {
  .no-print { display: none !important }
  .q-page-container { padding: 0 !important }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
"""

ROW_LOOKED_AT = """(event) => {
  const job = event.type === "mouseleave" ? "" : event.target.closest("tbody tr")?.cells[0].innerText ?? "";
  if (job !== window.job_looked_at) { window.job_looked_at = job; emit(job); }
}"""
"""Script that reports the name of the job whose row the pointer is on.

A slot of NiceGUI is not used, because NiceGUI would make the rows of a slot anew with each change of the page."""

STAYS = """<script type="module">
const connected = window.io;
window.io = (...options) => {
  const socket = connected(...options);
  const on = socket.on.bind(socket);
  const unlessLate = (handler) => (error) => {
    if (error.message !== "timeout") return handler(error);
    socket.io.opts.transports = ["polling", "websocket"];
  };
  socket.on = (event, handler) => on(event, event === "connect_error" ? unlessLate(handler) : handler);
  return socket;
};
</script>"""
"""Script that prevents NiceGUI from reloading the page after two timeouts of 20 s.

After a reload the browser would show an error page and stop trying. Without a reload, Socket.IO reconnects by itself.
As in NiceGUI, later attempts begin without a WebSocket, because some proxies let WebSockets time out. This script runs
after Socket.IO's script and before NiceGUI's. The script is part of the page, because a script sent to a connected page
could be lost."""
