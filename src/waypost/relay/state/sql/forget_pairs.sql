-- Forgets the last-seen pairs that matter least: those whose recipient never wrote back, before the
-- others; of these the pairs of the sender with the most, its oldest first. So new names lose their
-- own pairs, and a sender with few keeps them. The parameter is how many to forget.

delete from last_seen where (sender, recipient) in (
    select sender, recipient
    from (
        select
            sender,
            recipient,
            at_ms,
            exists (
                select 1 from last_seen as back
                where back.sender = pair.recipient and back.recipient = pair.sender
            ) as is_answered,
            row_number() over (partition by sender order by at_ms desc) as of_sender
        from last_seen as pair
    )
    order by is_answered, of_sender desc, at_ms
    limit ?
);
