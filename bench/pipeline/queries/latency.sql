WITH hours AS (
    SELECT day, relay, endpoint, date_trunc('hour', arrived_at) AS hour, count(*) AS messages,
        quantile_cont(wait_ms, [0.5, 0.95, 0.99]) AS wait,
        quantile_cont(total_ms, [0.5, 0.95, 0.99]) AS total
    FROM messages GROUP BY ALL
)
SELECT day, relay, endpoint, hour, messages,
    wait[1] AS wait_p50_ms, wait[2] AS wait_p95_ms, wait[3] AS wait_p99_ms,
    total[1] AS total_p50_ms, total[2] AS total_p95_ms, total[3] AS total_p99_ms
FROM hours
