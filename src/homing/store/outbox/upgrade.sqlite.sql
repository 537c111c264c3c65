ALTER TABLE homing_outbox ADD COLUMN key TEXT
    CONSTRAINT "key must be 1 to 128 bytes of printable text (UTF-8), without a space at its beginning or end"
    CHECK (key IS NULL OR (typeof(key) = 'text' AND length(CAST(key AS BLOB)) BETWEEN 1 AND 128
        AND key NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
        AND key NOT GLOB ' *' AND key NOT GLOB '* '));
