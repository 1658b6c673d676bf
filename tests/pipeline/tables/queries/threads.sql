SELECT day, relay, thread, sum(n) AS messages,
    count(*) FILTER (answer) AS answers,
    sum(if(kind = 'rejected', n, 0)) AS rejected,
    count(*) FILTER (reason = 'budget_exceeded' AND calls <= 0) AS exhausted,
    (SELECT list(DISTINCT name ORDER BY name) FROM (
        SELECT sender AS name FROM arrival AS one
            WHERE one.day = arrival.day AND one.thread = arrival.thread
        UNION ALL SELECT endpoint FROM arrival AS one
            WHERE one.day = arrival.day AND one.thread = arrival.thread AND endpoint <> ''))
        AS participants,
    min(calls) AS calls_left, max(hop_count) AS hops_max,
    min(moment) AS first_at, max(moment) AS last_at
FROM arrival
WHERE thread <> ''
GROUP BY day, relay, thread
HAVING count(*) FILTER (parent IS NOT NULL) > 0
