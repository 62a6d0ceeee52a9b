-- SPDX-License-Identifier: Apache-2.0
--
-- entry: write the client information, with a time to live.
--
-- KEYS: 1 {P@C}:client. ARGV: 1 time to live, ms, then field, value, field, value ...
-- Reply: OK. A full server keeps an existing hash for longer, and refuses a new one.
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.status_reply('OK')
