-- The values of one row of rollup or rollup_hour, on SQLite.
:at, :endpoint_id, :tenant, :node, :delivered, :failed, :sender_errors, :dropped,
:b0, :b1, :b2, :b3, :b4, :b5, :b6, :b7, :b8, :b9, :b10, :b11
