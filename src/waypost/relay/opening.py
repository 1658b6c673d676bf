"""Opening and closing a relay, and what it is configured with."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Self

from waypost.policy.breakers import DELIVERIES
from waypost.policy.settings import Settings, to_config_document
from waypost.relay.clock import Clock, system_clock
from waypost.relay.config.access_file import AccessFile
from waypost.relay.config.settings_file import SettingsFile
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.relay.delivery.forwarding import Partition
from waypost.relay.errors import DataDirUnusable, RelayStopped
from waypost.relay.journal.replicated import Ownership
from waypost.relay.journal.writer import Ballast
from waypost.relay.runtime import Given, Runtime
from waypost.relay.state.recovery import recover
from waypost.wire.events import OwnerChanged, RulesChanged, SettingsChanged

HANDLER_GRACE_S = 5.0


class OpenableRelay:
    """A relay on one data directory, without its operations."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        create_mailbox: Callable[[str], bool] = lambda subject: False,
        ownership: Ownership | None = None,
        partition: Partition | None = None,
    ) -> None:
        """Configure a relay; `open` starts it.

        `create_mailbox(subject)` is called when an admitted message has no recipient. It may
        register the subject, and returns whether it did. With `ownership`, the directory is this
        node's copy of a replicated log, and `open` raises `NotOwner` if another node is faster.
        With `partition`, the relay is one of several that share all subjects; without, it has all
        of them.
        """
        self._data = DataDir(data_dir)
        self._given = Given(
            settings or Settings(), clock or system_clock, create_mailbox, ownership, partition
        )
        self._open: tuple[Runtime, DirectoryLock] | None = None

    async def open(self) -> Self:
        """Lock the data directory, recover its state, and start. `close` ends it."""
        if self._open is None:
            self._open = await _open_runtime(self._data, self._given)
        return self

    async def close(self) -> None:
        """Finish running handlers, make everything durable, and unlock the directory.

        Leased messages return to their queues when the relay is opened again.
        """
        if self._open is not None:
            (runtime, lock), self._open = self._open, None
            await _close_runtime(runtime, lock)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _runtime(self) -> Runtime:
        """Return the open relay's runtime, or raise `RelayStopped`."""
        if self._open is None:
            raise RelayStopped("the relay is not open: use 'async with Relay(...)' or await open()")
        return self._open[0]

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._runtime.settings.current

    @property
    def settings_file(self) -> SettingsFile:
        """The settings file: `read`, `consider`, `replace`."""
        return self._runtime.settings

    @property
    def access(self) -> AccessFile:
        """The access rules: `add_rule`, `remove_rule`, `list_rules`, `check_access`."""
        return self._runtime.access


async def _open_runtime(data: DataDir, given: Given) -> tuple[Runtime, DirectoryLock]:
    """Lock the data directory, recover its state, and start a runtime."""
    data.create()
    try:
        lock, ballast = DirectoryLock(data), Ballast(data.journal)
        try:
            ballast.release()  # on a full disk, this is the room in which the relay opens
            return await _start(data, given, lock), lock
        except BaseException:
            ballast.shrink()
            lock.release()
            raise
    except (OSError, sqlite3.Error) as problem:
        raise DataDirUnusable(f"cannot open {data.root}: {problem}") from problem


async def _start(data: DataDir, given: Given, lock: DirectoryLock) -> Runtime:
    settings = SettingsFile(data, given.settings)
    access = AccessFile(data)
    window_us = settings.current.rate_limit.window_secs * 1_000_000
    recovered = await asyncio.to_thread(recover, data, window_us)
    runtime = Runtime(data, settings, access, recovered, given)
    try:
        await asyncio.to_thread(runtime.restore_files)
        if given.ownership is not None:
            _take_ownership(runtime, given.ownership)
        _journal_config(runtime)
        runtime.end_old_leases()
        runtime.endpoints.end_old_requests()
        runtime.returns.resume_delays()
        runtime.schedule.queue_due()
        await runtime.ledger.sync()
        runtime.keep(lock)
        runtime.sweeper.start()
        if settings.current.watch_files:
            await runtime.file_watcher.start()
        if runtime.uses_files:
            await runtime.drop_ins.scan_in_turns()
        if runtime.forwarding is not None:
            runtime.forwarding.resume()
    except BaseException:
        await _close_files(runtime)
        raise
    return runtime


async def _close_runtime(runtime: Runtime, lock: DirectoryLock) -> None:
    """Finish running handlers, make everything durable, and unlock the directory.

    The directory is unlocked in any case. Raises `DataDirUnusable` if something was not written.
    """
    runtime.closed = True
    try:
        async with AsyncExitStack() as ends:
            ends.callback(lock.release)
            ends.push_async_callback(_close_files, runtime)
            try:
                await _stop(runtime)
            except RelayStopped:
                pass  # callers have got this error already; the journal has everything durable
    except (OSError, sqlite3.Error) as problem:
        raise DataDirUnusable(
            f"{runtime.data.root} is closed, but its last changes may not be on the disk: {problem}"
        ) from problem


async def _stop(runtime: Runtime) -> None:
    """Stop every activity, and write what is left to write."""
    await runtime.file_watcher.stop()
    runtime.sweeper.stop()
    await runtime.drop_in_search.stop()
    await runtime.journal_tasks.quiet()
    await runtime.handlers.stop(HANDLER_GRACE_S)
    if runtime.forwarding is not None:
        await runtime.forwarding.stop()
    runtime.leases.stop()
    runtime.life.stop()
    runtime.returns.stop()
    runtime.schedule.stop()
    runtime.consumers.detach_all()
    await runtime.subscriptions.detach_all()
    runtime.signals.detach_all()
    runtime.rejections.flush()
    runtime.transitions.expiries.write(runtime.ledger.now_us())
    if runtime.signing is not None:
        runtime.signing.stop()
    await runtime.ledger.sync()
    await runtime.checkpoints.finish()


async def _close_files(runtime: Runtime) -> None:
    """Close every file, also if one of them fails."""
    async with AsyncExitStack() as ends:
        ends.callback(runtime.payloads.close)
        ends.callback(runtime.index.close)
        ends.push_async_callback(asyncio.to_thread, runtime.checkpoints.stop)
        await runtime.journal.close()


def _take_ownership(runtime: Runtime, ownership: Ownership) -> None:
    """Journal the owner, as the first event of its epoch."""
    runtime.ledger.record(
        OwnerChanged(
            at_us=runtime.ledger.now_us(),
            epoch=ownership.epoch,
            node=ownership.node,
            address=ownership.address,
        )
    )


def _journal_config(runtime: Runtime) -> None:
    """Journal the settings and access rules, now and whenever they change."""

    def settings_changed(cause: str = "reload") -> None:
        current = runtime.settings.current
        runtime.journal.settings = current
        idle_ms = current.housekeeping.breaker_idle_ms
        runtime.breaker_feedback.breakers.update_config(current.circuit_breaker, idle_ms)
        if cause == "reload":
            runtime.sweeper.start()  # its interval may have changed
            runtime.life.check_all()
        runtime.ledger.record(
            SettingsChanged(
                at_us=runtime.ledger.now_us(),
                cause=cause,
                settings=to_config_document(current),
                problem=runtime.settings.problem,
                breakers_count=DELIVERIES,
            )
        )

    def rules_changed() -> None:
        runtime.ledger.record(
            RulesChanged(
                at_us=runtime.ledger.now_us(),
                rules=runtime.access.list_rules(),
                problem=runtime.access.problem,
            )
        )

    settings_changed("start")
    rules_changed()
    runtime.settings.on_change = settings_changed
    runtime.access.on_change = rules_changed
