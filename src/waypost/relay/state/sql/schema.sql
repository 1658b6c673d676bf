-- The index is derived from the journal and may be deleted at any time.
-- `position` says up to which commit of the journal the other tables stand.

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
    since_us  integer not null
) without rowid;

-- One row for each message and endpoint: live ones ('new', 'cur') and dead letters ('failed').
-- `ordering` is the event that put it in line: new rows go to the end, which is quickest.
create table if not exists messages (
    ordering      integer primary key,
    endpoint      text not null,
    id            text not null,
    status        text not null check (status in ('new', 'cur', 'failed')),
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
    failed_at_us  integer not null
);

-- When each sender last wrote to each recipient.
create table if not exists last_seen (
    sender     text not null,
    recipient  text not null,
    at_ms      integer not null,
    primary key (sender, recipient)
) without rowid;

-- First results of publishes whose sender chose the id. Ids are each sender's own: `id` is the
-- sender, a space, and the id.
create table if not exists duplicates (
    id      text primary key,
    at_us   integer not null,
    result  text not null
) without rowid;
