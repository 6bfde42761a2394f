"""The client's calls for work on the fabric, see ``fabric_work``."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from signalbox.client_connection import ClientConnection
from signalbox.mapping import duration, number_of, timestamp
from signalbox.v1 import signalbox_pb2 as pb


class FabricWorkCalls(ClientConnection):
    """A part of ``Client``, which has the other calls."""

    def list_events(self, after_s: float | None = None, kinds: Iterable[str] = ()) -> Iterator[pb.Event]:
        """Oldest first. ``after_s``: seconds since 1970; all that are kept when None. ``kinds``: words of the API's
        ``EventKind``; all when empty. Raises ``KeyError`` for other words."""
        numbers = [number_of(pb.EventKind.DESCRIPTOR, kind) for kind in kinds]
        request = pb.ListEventsRequest(kinds=numbers, after=None if after_s is None else timestamp(after_s))
        while True:
            response: pb.ListEventsResponse = self._call(self._controller.ListEvents, request)
            yield from response.events
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    def watch_events(
        self, resume_token: str = "", after_s: float | None = None, kinds: Iterable[str] = ()
    ) -> Generator[pb.WatchEventsResponse, None, None]:
        """Those that follow; before them those at and after ``after_s``, when it is given and no token is."""
        numbers = [number_of(pb.EventKind.DESCRIPTOR, kind) for kind in kinds]
        after = None if after_s is None else timestamp(after_s)
        request = pb.WatchEventsRequest(resume_token=resume_token, after=after, kinds=numbers)
        return self._watch(self._controller.WatchEvents, request)

    def silence_alarms(self, kind: str, subject: str = "", for_s: float | None = None, comment: str = "") -> None:
        """Note that operators know of an alarm, or of all of a kind. ``for_s``: seconds; until it is over when None.
        Raises ``KeyError`` for a word that is no ``AlarmKind``."""
        request = pb.SilenceAlarmsRequest(
            kind=number_of(pb.AlarmKind.DESCRIPTOR, kind),
            subject=subject,
            duration=None if for_s is None else duration(for_s),
            comment=comment,
        )
        self._call(self._controller.SilenceAlarms, request)

    def end_silence(self, kind: str, subject: str = "") -> None:
        """Raises ``InvalidInput`` when there is none."""
        request = pb.EndSilenceRequest(kind=number_of(pb.AlarmKind.DESCRIPTOR, kind), subject=subject)
        self._call(self._controller.EndSilence, request)

    def drain(self, names: Iterable[str]) -> pb.DrainResponse:
        """Take switches and cables out of use; returns when that is saved. Raises ``InvalidInput``, and ``Conflict``
        when hosts would be cut off."""
        response: pb.DrainResponse = self._call(self._controller.Drain, pb.DrainRequest(names=names))
        return response

    def undrain(self, names: Iterable[str]) -> pb.UndrainResponse:
        """Use them again; returns when that is saved."""
        response: pb.UndrainResponse = self._call(self._controller.Undrain, pb.UndrainRequest(names=names))
        return response

    def forget_parts(self, names: Iterable[str]) -> tuple[pb.DownPart, ...]:
        """Parts of the fabric that are down are not expected any more. Returns all that were forgotten. Raises
        ``InvalidInput`` for names of none, and ``Conflict`` for those that are there or declared."""
        request = pb.ForgetPartsRequest(names=names)
        response: pb.ForgetPartsResponse = self._call(self._controller.ForgetParts, request)
        return tuple(response.parts)
