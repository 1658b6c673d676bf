-- Events are aggregated by message; only repeated ids are separated by their arrivals.
WITH kept AS (
    SELECT * FROM arrival
    WHERE (kind = 'accepted' AND endpoint <> '')
        OR (kind = 'rejected' AND reason = 'budget_exceeded' AND kept)
), again AS (
    SELECT relay, endpoint, id, list(seq ORDER BY seq) AS seqs, list(at_us ORDER BY seq) AS times
    FROM kept WHERE chosen_id GROUP BY ALL HAVING count(*) > 1
), moved AS (
    SELECT line.*,
        if(seqs IS NULL, 0, list_max(list_filter(seqs, lambda one: one < seq))) AS turn
    FROM line LEFT JOIN again USING (relay, endpoint, id)
    WHERE kind IN ('leased', 'acked', 'returned', 'failed', 'expired', 'evicted', 'redriven',
        'queued', 'cancelled')
), lives AS (
    SELECT relay, endpoint, id, turn,
        arg_max(if(kind = 'expired' AND was = 'dead', 'purged', kind), seq) AS last_kind,
        max(at_us) AS last_us,
        min(at_us) FILTER (kind = 'leased') AS leased_us,
        max(at_us) FILTER (kind IN ('failed', 'evicted')) AS died_us,
        arg_max(reason, seq) FILTER (kind IN ('failed', 'evicted')) AS died_of,
        arg_max(reason, seq) FILTER (kind = 'expired' AND was = 'pending') AS expired_of,
        count(*) FILTER (kind = 'leased' AND NOT extended) AS attempts,
        count(*) FILTER (kind = 'returned') AS returns,
        count(*) FILTER (kind = 'redriven') AS redrives
    FROM moved GROUP BY ALL
), turned AS (
    SELECT kept.*, if(seqs IS NULL, 0, seq) AS turn,
        times[list_position(seqs, seq) + 1] AS replaced_us
    FROM kept LEFT JOIN again USING (relay, endpoint, id)
), states AS (
    SELECT turned.*, last_us, leased_us, expired_of, attempts, returns, redrives,
        coalesce(died_us, if(kind = 'rejected', at_us, NULL)) AS died_us,
        coalesce(died_of, if(kind = 'rejected', detail, NULL)) AS died_of,
        CASE coalesce(last_kind, kind)
            WHEN 'accepted' THEN 'pending' WHEN 'returned' THEN 'pending'
            WHEN 'redriven' THEN 'pending' WHEN 'leased' THEN 'leased' WHEN 'acked' THEN 'acked'
            WHEN 'queued' THEN 'pending' WHEN 'cancelled' THEN 'cancelled'
            WHEN 'expired' THEN 'expired' WHEN 'purged' THEN 'purged' ELSE 'dead' END AS last_state
    FROM turned LEFT JOIN lives USING (relay, endpoint, id, turn)
), final AS (
    SELECT *,
        last_state = 'dead' AND replaced_us IS NOT NULL AS replaced,
        CASE WHEN last_state = 'dead' AND replaced_us IS NOT NULL THEN 'purged'
            WHEN last_state = 'pending' AND due_us // 1000 > coalesce(last_us, at_us) // 1000
            THEN 'scheduled' ELSE last_state END AS state
    FROM states
)
SELECT day, relay, seq, id, sender, subject, endpoint, part, parts, reply_to, parent, thread, answer,
    size, hop_count, tier, depth, moment AS arrived_at,
    if(due_us > 0, make_timestamp(due_us), NULL) AS due_at,
    make_timestamp(leased_us) AS first_leased_at,
    CASE WHEN state IN ('scheduled', 'pending', 'leased') THEN NULL WHEN replaced THEN make_timestamp(replaced_us)
        ELSE make_timestamp(coalesce(last_us, at_us)) END AS finished_at,
    state,
    CASE WHEN state = 'expired' THEN expired_of WHEN state IN ('dead', 'purged') THEN died_of END
        AS reason,
    make_timestamp(died_us) AS died_at, died_of, coalesce(attempts, 0) AS attempts,
    coalesce(returns, 0) AS returns, coalesce(redrives, 0) AS redrives,
    (leased_us - greatest(at_us, due_us)) / 1000.0 AS wait_ms,
    CASE WHEN state = 'acked' THEN (last_us - greatest(at_us, due_us)) / 1000.0 END AS total_ms
FROM final
