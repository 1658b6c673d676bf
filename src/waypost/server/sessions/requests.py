"""What a connected agent asks for, decided: sends and signals, and their answers."""

from waypost.policy.errors import AccessDenied, InvalidInput
from waypost.policy.reasons import Reason
from waypost.relay.delivery.drafts import Draft
from waypost.relay.errors import RelayStopped
from waypost.server.sessions.errors import brief
from waypost.server.sessions.hub import Hub
from waypost.wire import frames
from waypost.wire.frames import Codec, FrameOperation
from waypost.wire.payloads import encode_payload, validate_signal
from waypost.wire.problems import QUEUE_FULL_TEXT, discreet
from waypost.wire.results import PublishResult


class Requests:
    """Of one agent. Answers hold once what was decided is on disk."""

    def __init__(self, hub: Hub, subject: str, codec: Codec, show_pressure: bool) -> None:
        self._hub = hub
        self._subject = subject
        self._codec = codec
        self._show_pressure = show_pressure
        self.unanswered = 0
        self.rejected_in_a_row = 0

    def send(self, asked: frames.Send) -> list[FrameOperation]:
        """Publish, and say what became of it."""
        try:
            draft = Draft(
                asked.subject,
                self._codec.payload_to_json(asked.payload),
                asked.reply_to,
                asked.budget,
                None if asked.parent is None else asked.parent.to_envelope(),
                asked.message_id,
                sender=self._subject,
            )
            result = self._hub.publish(draft)
        except AccessDenied as denied:
            self.rejected_in_a_row += 1
            reason = str(Reason.ACCESS_DENIED)
            return [frames.Error(ref=asked.ref, error=str(denied), reason=reason)]
        except InvalidInput as problem:
            self.rejected_in_a_row += 1
            return [frames.Error(ref=asked.ref, error=brief(problem), reason="invalid")]
        except RelayStopped as stopped:
            return [frames.Error(ref=asked.ref, error=str(stopped), reason="stopped")]
        if result.rejected and not result.delivered_to:
            self.rejected_in_a_row += 1
        else:
            self.rejected_in_a_row = 0
        return self._answers(asked, result)

    def signal(self, asked: frames.SendSignal) -> list[FrameOperation]:
        """Tell whoever is connected; only a mistake is answered."""
        try:
            encode_payload(asked.signal.data)  # only what could be a payload is passed on
            self._hub.signal(self._subject, asked.subject, validate_signal(asked.signal))
        except AccessDenied as denied:
            return [frames.Error(error=str(denied), reason=str(Reason.ACCESS_DENIED))]
        except InvalidInput as problem:
            return [frames.Error(error=brief(problem), reason="invalid")]
        return []

    def _answers(self, asked: frames.Send, result: PublishResult) -> list[FrameOperation]:
        shown = result if self._show_pressure else discreet(result)
        answers: list[FrameOperation] = [
            frames.SendResult(
                ref=asked.ref,
                message_id=shown.message_id,
                delivered_to=shown.delivered_to,
                rejected=shown.rejected,
                retry_after_ms=shown.retry_after_ms,
                mailbox_pressure=shown.mailbox_pressure,
            )
        ]
        if any(one.reason is Reason.BACKPRESSURE for one in result.rejected):
            full = frames.QueueFull(ref=asked.ref, recipient=asked.subject, reason=QUEUE_FULL_TEXT)
            answers.append(full)
        return answers
