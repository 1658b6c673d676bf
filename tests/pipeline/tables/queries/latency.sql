SELECT day, relay, endpoint, date_trunc('hour', arrived_at) AS hour, count(*) AS messages,
    quantile_cont(wait_ms, 0.5) AS wait_p50_ms, quantile_cont(wait_ms, 0.95) AS wait_p95_ms,
    quantile_cont(wait_ms, 0.99) AS wait_p99_ms,
    quantile_cont(total_ms, 0.5) AS total_p50_ms, quantile_cont(total_ms, 0.95) AS total_p95_ms,
    quantile_cont(total_ms, 0.99) AS total_p99_ms
FROM messages GROUP BY ALL
