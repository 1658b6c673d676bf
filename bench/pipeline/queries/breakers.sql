SELECT day, relay, seq, moment AS at, endpoint, before, after, occasion,
    (lead(at_us) OVER (PARTITION BY relay, endpoint ORDER BY seq) - at_us) / 1000.0 AS lasted_ms
FROM line WHERE kind = 'breaker'
