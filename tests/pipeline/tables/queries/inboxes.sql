WITH boxes AS (
    SELECT day, relay, endpoint,
        sum(if(kind IN ('accepted', 'rejected'), n, 0)) AS arrivals,
        count(*) FILTER (kind = 'accepted') AS stored,
        sum(if(kind = 'rejected', n, 0)) AS rejected,
        count(*) FILTER (kind = 'acked') AS acked,
        count(*) FILTER (kind = 'failed') AS failed,
        count(*) FILTER (kind = 'expired' AND was = 'pending') AS expired,
        count(*) FILTER (kind = 'evicted') AS evicted,
        sum(if(kind = 'accepted', size, 0)) AS bytes,
        count(DISTINCT if(kind IN ('accepted', 'rejected'), sender, NULL)) AS senders,
        max(depth) AS depth_peak,
        max(if(depth_max > 0, least(depth / depth_max, 1.0), 0.0)) AS pressure_peak
    FROM line
    WHERE endpoint <> '' AND kind IN ('accepted', 'rejected', 'leased', 'acked', 'returned',
        'failed', 'expired', 'evicted', 'redriven', 'queued', 'cancelled')
    GROUP BY ALL
)
SELECT boxes.*,
    quantile_cont(wait_ms, 0.5) AS wait_p50_ms, quantile_cont(wait_ms, 0.95) AS wait_p95_ms,
    quantile_cont(total_ms, 0.5) AS total_p50_ms, quantile_cont(total_ms, 0.95) AS total_p95_ms
FROM boxes LEFT JOIN messages USING (day, endpoint)
GROUP BY ALL
