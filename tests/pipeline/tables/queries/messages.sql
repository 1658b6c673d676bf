-- Every line of a message gets the number of arrivals of its id so far, `turn`.
WITH story AS (
    SELECT *, kind IN ('accepted', 'rejected') AS arrives
    FROM line
    WHERE (kind = 'accepted' AND endpoint <> '')
        OR (kind = 'rejected' AND reason = 'budget_exceeded' AND kept)
        OR kind IN ('leased', 'acked', 'returned', 'failed', 'expired', 'evicted', 'redriven',
            'queued', 'cancelled')
), turns AS (
    SELECT *, sum(arrives::INTEGER) OVER (PARTITION BY endpoint, id ORDER BY seq) AS turn
    FROM story
), lives AS (
    SELECT endpoint, id, turn,
        arg_max(kind, seq) AS last_kind, arg_max(was, seq) AS last_was, max(moment) AS last_at,
        min(moment) FILTER (kind = 'leased') AS first_leased_at,
        max(moment) FILTER (kind IN ('failed', 'evicted')) AS died_at,
        arg_max(reason, seq) FILTER (kind IN ('failed', 'evicted')) AS died_of,
        arg_max(reason, seq) FILTER (kind = 'expired' AND was = 'pending') AS expired_of,
        count(*) FILTER (kind = 'leased' AND NOT extended) AS attempts,
        count(*) FILTER (kind = 'returned') AS returns,
        count(*) FILTER (kind = 'redriven') AS redrives
    FROM turns GROUP BY ALL
), states AS (
    SELECT here.*, next.moment AS replaced_at, lives.* EXCLUDE (endpoint, id, turn, died_at, died_of),
        coalesce(lives.died_at, CASE WHEN here.kind = 'rejected' THEN here.moment END) AS died_at,
        coalesce(lives.died_of, CASE WHEN here.kind = 'rejected' THEN here.detail END) AS died_of,
        CASE last_kind
            WHEN 'accepted' THEN 'pending' WHEN 'returned' THEN 'pending'
            WHEN 'redriven' THEN 'pending' WHEN 'leased' THEN 'leased' WHEN 'acked' THEN 'acked'
            WHEN 'queued' THEN 'pending' WHEN 'cancelled' THEN 'cancelled'
            WHEN 'expired' THEN if(last_was = 'dead', 'purged', 'expired')
            ELSE 'dead' END AS last_state
    FROM turns AS here
    JOIN lives USING (endpoint, id, turn)
    LEFT JOIN turns AS next
        ON next.arrives AND next.endpoint = here.endpoint AND next.id = here.id
        AND next.turn = here.turn + 1
    WHERE here.arrives
), final AS (
    SELECT *,
        last_state = 'dead' AND replaced_at IS NOT NULL AS replaced,
        CASE WHEN last_state = 'dead' AND replaced_at IS NOT NULL THEN 'purged'
            WHEN last_state = 'pending' AND due_us // 1000 > epoch_us(last_at) // 1000
            THEN 'scheduled' ELSE last_state END AS state
    FROM states
)
SELECT day, relay, seq, id, sender, subject, endpoint, part, parts, reply_to, parent, thread,
    answer, size,
    hop_count, tier, depth, moment AS arrived_at,
    if(due_us > 0, make_timestamp(due_us), NULL) AS due_at, first_leased_at,
    CASE WHEN state IN ('scheduled', 'pending', 'leased') THEN NULL WHEN replaced THEN replaced_at
        ELSE last_at END AS finished_at,
    state,
    CASE WHEN state = 'expired' THEN expired_of WHEN state IN ('dead', 'purged') THEN died_of END
        AS reason,
    died_at, died_of, attempts, returns, redrives,
    (epoch_us(first_leased_at) - greatest(at_us, due_us)) / 1000.0 AS wait_ms,
    CASE WHEN state = 'acked'
        THEN (epoch_us(last_at) - greatest(at_us, due_us)) / 1000.0 END AS total_ms
FROM final
