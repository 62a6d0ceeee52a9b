-- SPDX-License-Identifier: Apache-2.0
--
-- entry: who a client is, for a while.
--
-- KEYS: 1 {P@C}:client. ARGV: 1 how long it is kept, ms, then field, value, field, value ...
-- Reply: OK. On a full server an entry that is there is kept up, a new one is refused.
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.status_reply('OK')
