-- Adds what format 3 knows of each endpoint and message. Tier 0 is that of a message from before: it is only in
-- the journal, and the message does not count as that of a stranger.

begin;
alter table messages add column tier integer not null default 0;
alter table messages add column cause text not null default '';
alter table endpoints add column directory text not null default '';
update messages set cause = 'evicted' where status = 'failed' and reason like 'evicted:%';
update position set format = 3;
commit;
