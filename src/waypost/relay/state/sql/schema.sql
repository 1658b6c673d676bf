-- The index is derived from the journal and may be deleted at any time.
-- `position` is the commit of the journal up to which the other tables are complete.

create table if not exists position (
    only_row  integer primary key check (only_row = 1),
    format    integer not null,
    seq       integer not null,
    at_us     integer not null,
    segment   integer not null,
    offset    integer not null
);

create table if not exists endpoints (
    subject   text primary key,
    since_us  integer not null,
    directory text not null
) without rowid;

-- One row for each message and endpoint: live ones ('later', 'new', 'cur') and dead letters
-- ('failed').
-- `ordering` is the event that queued it: new rows are appended, which is fastest.
create table if not exists messages (
    ordering      integer primary key,
    endpoint      text not null,
    id            text not null,
    status        text not null check (status in ('later', 'new', 'cur', 'failed')),
    sender        text not null,
    size          integer not null,
    ttl_ms        integer not null,
    at_us         integer not null,
    segment       integer not null,
    offset        integer not null,
    length        integer not null,
    attempt       integer not null,
    not_before_us integer not null,
    via           text not null,
    reason        text not null,
    failed_at_us  integer not null,
    tier          integer not null,
    cause         text not null,
    due_us        integer not null
);

-- When each sender last wrote to each recipient.
create table if not exists last_seen (
    sender     text not null,
    recipient  text not null,
    at_ms      integer not null,
    primary key (sender, recipient)
) without rowid;

-- First results of publishes with an id chosen by the sender. `id` is the sender, a space and the
-- id, because each sender has its own ids.
create table if not exists duplicates (
    id      text primary key,
    at_us   integer not null,
    result  text not null
) without rowid;
