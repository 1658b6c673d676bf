"""Opening and closing a relay, in the order that loses nothing."""

import asyncio
import sqlite3

from waypost.policy.settings import Settings, to_config_document
from waypost.relay.clock import Clock
from waypost.relay.config.access_file import AccessFile
from waypost.relay.config.settings_file import SettingsFile
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.errors import DataDirUnusable, RelayStopped
from waypost.relay.runtime import Runtime
from waypost.relay.state.recovery import recover
from waypost.wire.events import RulesChanged, SettingsChanged

HANDLER_GRACE_S = 5.0


async def open_runtime(
    data: DataDir, given: Settings, clock: Clock
) -> tuple[Runtime, DirectoryLock]:
    """Own the directory, recover what is in it, and start."""
    data.create()
    try:
        lock = DirectoryLock(data)
        try:
            return await _start(data, given, clock), lock
        except BaseException:
            lock.release()
            raise
    except (OSError, sqlite3.Error) as problem:
        raise DataDirUnusable(f"cannot open {data.root}: {problem}") from problem


async def _start(data: DataDir, given: Settings, clock: Clock) -> Runtime:
    settings = SettingsFile(data, given)
    access = AccessFile(data)
    window_us = settings.current.rate_limit.window_secs * 1_000_000
    recovered = await asyncio.to_thread(recover, data, window_us)
    parts = Runtime(data, settings, access, recovered, clock)
    try:
        await asyncio.to_thread(parts.restore_files)
        _announce(parts)
        parts.end_old_leases()
        parts.endpoints.end_old_requests()
        parts.leases.resume()
        await parts.ledger.sync()
        parts.sweeper.start()
        if settings.current.watch_files:
            await parts.watching.start()
        if parts.uses_files:
            parts.drop_ins.scan_all()
    except BaseException:
        await _close_files(parts)
        raise
    return parts


async def close_runtime(parts: Runtime, lock: DirectoryLock) -> None:
    """Finish what is under way, write everything down, and let go of the directory."""
    try:
        await parts.watching.stop()
        parts.sweeper.stop()
        await parts.dispatch.stop(HANDLER_GRACE_S)
        parts.leases.stop()
        parts.consumers.leave_all()
        parts.subscriptions.detach_all()
        parts.signals.detach_all()
        parts.rejections.flush()
        await parts.ledger.sync()
        await parts.checkpoints.finish()
    except RelayStopped:
        pass  # whoever waited was told; what is durable is in the journal
    finally:
        await _close_files(parts)
        lock.release()


async def _close_files(parts: Runtime) -> None:
    await parts.journal.close()
    await asyncio.to_thread(parts.checkpoints.stop)
    parts.index.close()
    parts.bodies.close()


def _announce(parts: Runtime) -> None:
    """Write settings and rules into the journal, now and whenever they change."""

    def settings_changed(cause: str = "reload") -> None:
        current = parts.settings.current
        parts.journal.settings = current
        idle_ms = current.housekeeping.breaker_idle_ms
        parts.outcomes.breakers.update_config(current.circuit_breaker, idle_ms)
        if cause == "reload":
            parts.sweeper.start()  # its interval may be another now
        parts.ledger.record(
            SettingsChanged(
                at_us=parts.ledger.now_us(),
                cause=cause,
                settings=to_config_document(current),
                problem=parts.settings.problem,
            )
        )

    def rules_changed() -> None:
        parts.ledger.record(
            RulesChanged(
                at_us=parts.ledger.now_us(),
                rules=parts.access.list_rules(),
                problem=parts.access.problem,
            )
        )

    settings_changed("start")
    rules_changed()
    parts.settings.on_change = settings_changed
    parts.access.on_change = rules_changed
