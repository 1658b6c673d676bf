-- Nearly all messages are followed by none: their threads are left out before anything is grouped.
WITH followed AS (
    SELECT DISTINCT day, relay, thread FROM arrival WHERE parent IS NOT NULL
)
SELECT day, relay, thread, sum(n) AS messages,
    count(*) FILTER (answer) AS answers,
    sum(if(kind = 'rejected', n, 0)) AS rejected,
    count(*) FILTER (reason = 'budget_exceeded' AND calls <= 0) AS exhausted,
    list_sort(list_distinct(list_concat(list(sender), list(endpoint) FILTER (endpoint <> ''))))
        AS participants,
    min(calls) AS calls_left, max(hop_count) AS hops_max,
    min(moment) AS first_at, max(moment) AS last_at
FROM arrival SEMI JOIN followed USING (day, relay, thread)
GROUP BY day, relay, thread
