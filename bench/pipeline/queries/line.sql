-- The events of the lake, with the column names of the queries.
CREATE VIEW line AS
SELECT
    relay, kind, seq, at_us, make_timestamp(at_us) AS moment, day,
    id, coalesce(nullif(thread, ''), id) AS thread, sender, subject, endpoint, part, parts,
    reply_to, parent, answer, chosen_id, due_us, size, hop_count, call_budget_remaining AS calls, tier,
    depth, depth_max, kept, coalesce(extended, false) AS extended, reason, detail, retry_after_ms, coalesce("count", 1) AS n, since_us, was,
    before, after, occasion, action, cause,
    -- A line that counts several arrivals belongs to the minute of the first, if on the same day.
    date_trunc('minute', CASE
        WHEN kind = 'rejected' AND since_us > 0
            AND make_timestamp(since_us)::DATE = make_timestamp(at_us)::DATE
        THEN make_timestamp(since_us) ELSE make_timestamp(at_us) END) AS minute
FROM read_parquet($files);

CREATE VIEW arrival AS SELECT * FROM line WHERE kind IN ('accepted', 'rejected');
