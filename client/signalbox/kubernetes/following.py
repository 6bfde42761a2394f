"""Keep the jobs of a cluster registered, and report about them in events of their Kubernetes objects.

``Following`` has the annotated jobs, and the pods of all training jobs. It receives each object that is added, changed
or removed, and the end of each registration. All calls must come from one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from signalbox.errors import InvalidInput
from signalbox.jobs.spec import JobSpec
from signalbox.kept_folder import Jobs
from signalbox.kubernetes.announcing import Body, Idle, JobKey, Pod, Ready, announcement, is_annotated, job_id
from signalbox.membership import Ended

log = logging.getLogger("signalbox")


Tell = Callable[[Body, bool, str, str], None]
"""Function that posts an event: object, whether it is a warning, reason in one word, message."""


@dataclass
class _Followed:
    """Job that is followed.

    - ``kept``: spec under which it is registered; None while it is not registered
    - ``reported``: reason and message of its latest event"""

    body: Body
    kept: JobSpec | None = None
    reported: tuple[str, str] | None = None


class Following:
    """Jobs and pods of the cluster. ``keeper`` keeps the jobs registered; ``tell`` posts events."""

    def __init__(self, keeper: Jobs, tell: Tell) -> None:
        self._keeper, self._tell = keeper, tell
        self._jobs: dict[JobKey, _Followed] = {}
        self._pods: dict[JobKey, dict[str, Pod]] = {}

    def job(self, kind: str, body: Body, gone: bool) -> None:
        """Process a job that was added, changed, or removed (``gone``)."""
        metadata = body["metadata"]
        key = JobKey(kind, metadata["namespace"], metadata["name"])
        followed = self._jobs.get(key)
        if followed and followed.body["metadata"]["uid"] != metadata["uid"]:
            if gone:
                return  # an earlier job of the same name was removed
            self._forget(key)
            followed = None
        if gone or not is_annotated(body):
            self._forget(key)
            return
        if followed:
            followed.body = body
        else:
            self._jobs[key] = _Followed(body)
        self._look_at(key)

    def pod(self, body: Body, gone: bool) -> None:
        """Process a pod that was added, changed, or removed (``gone``)."""
        found = Pod.of(body)
        if found is None:
            return
        key, pod = found
        of_job = self._pods.setdefault(key, {})
        before = of_job.pop(pod.uid, None)
        if not gone:
            of_job[pod.uid] = pod
        if key in self._jobs and before != of_job.get(pod.uid):
            self._look_at(key)
        if not of_job:
            del self._pods[key]

    def kept(self) -> list[tuple[str, Body]]:
        """Return the kind and the Kubernetes object of each job that is kept registered."""
        return [(key.kind, each.body) for key, each in self._jobs.items() if each.kept]

    def ended(self, name: str, why: Ended) -> None:
        """Post an event about the end of a registration to the object of its job."""
        for key, followed in self._jobs.items():
            if job_id(key) == name and followed.kept:
                text = _ENDS.get(why, f"job '{name}' is no longer kept registered: {why}")
                self._report(followed, why is not Ended.TAKEN_OVER, "Ended", text.format(name=name))

    def _forget(self, key: JobKey) -> None:
        followed = self._jobs.pop(key, None)
        if followed and followed.kept:
            log.info("job '%s' is deregistered: its %s was removed", followed.kept.job_id, key.kind)
            self._keeper.release(followed.kept.job_id)

    def _look_at(self, key: JobKey) -> None:
        followed = self._jobs[key]
        try:
            outcome = announcement(key, followed.body, self._pods.get(key, {}).values())
        except InvalidInput as error:
            stays = "; the earlier announcement stays" if followed.kept else ""
            self._report(followed, True, "NotAnnounced", f"{error}{stays}")
            return
        if isinstance(outcome, Ready):
            self._keep(followed, outcome.spec)
        elif isinstance(outcome, Idle) and followed.kept:
            self._keeper.release(followed.kept.job_id)
            self._report(followed, False, "Released", f"job '{followed.kept.job_id}' is deregistered: {outcome.why}")
            followed.kept = None
        else:
            log.debug("%s %s/%s: %s", *key, outcome.why)

    def _keep(self, followed: _Followed, spec: JobSpec) -> None:
        if spec != followed.kept:
            reason = "Updated" if followed.kept else "Announced"
            followed.kept = spec
            self._keeper.keep(spec)
        elif followed.reported and followed.reported[0] == "NotAnnounced":
            reason = "Announced"  # the error has been corrected
        else:
            return
        text = f"job '{spec.job_id}': {len(spec.endpoints)} ranks at {len({*spec.endpoints})} addresses"
        self._report(followed, False, reason, f"{text}, traffic observed" if spec.observed else text)

    def _report(self, followed: _Followed, warning: bool, reason: str, message: str) -> None:
        if followed.reported != (reason, message):
            followed.reported = (reason, message)
            metadata = followed.body["metadata"]
            level = logging.WARNING if warning else logging.INFO
            log.log(level, "%s/%s: %s: %s", metadata["namespace"], metadata["name"], reason, message)
            self._tell(followed.body, warning, reason, message)


_ENDS = {
    Ended.TAKEN_OVER: "another registration, such as the program's own, has taken over job '{name}'",
    Ended.DEREGISTERED: "an operator has ended job '{name}'; it is registered again when its spec changes",
    Ended.REFUSED: "the Signalbox controller has refused job '{name}'; the log of signalbox kubernetes says why",
}
