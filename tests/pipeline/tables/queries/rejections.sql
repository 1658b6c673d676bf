SELECT day, relay, seq, moment AS at, id, sender, subject, endpoint, reason, detail, n AS count,
    tier, retry_after_ms, kept
FROM line WHERE kind = 'rejected'
