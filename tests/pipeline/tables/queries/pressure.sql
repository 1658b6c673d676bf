SELECT day, relay, endpoint, minute, sum(n) AS arrivals, max(depth) AS depth_peak,
    max(depth_max) AS depth_max,
    max(if(depth_max > 0, least(depth / depth_max, 1.0), 0.0)) AS pressure
FROM arrival WHERE endpoint <> ''
GROUP BY day, relay, endpoint, minute
