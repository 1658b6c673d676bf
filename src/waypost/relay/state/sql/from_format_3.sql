-- Adds scheduled messages: their status, and when each is due. There are none in format 3.

begin;
create table messages_4 (
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
insert into messages_4 select *, 0 from messages;
drop table messages;
alter table messages_4 rename to messages;
update position set format = 4;
commit;
