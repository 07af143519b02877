import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Discovery, signing in, and API keys. It returns what signs out.
export default async function ({ check, newClient, user, object, wire, state }) {
  const client = user;
  await check('discovery/connect', async () => {
    const d = await client.connect();
    assert.deepEqual([typeof d.version, d.name, d.environment, d.routes.data, d.routes.metadata], ['string', 'objecthost', 'production', '/api/v1/data', '/api/v1/meta']);
    assert.ok(d.routes.auth && d.routes.automation && d.services && d.capabilities);
  });
  await check('discovery/well-known', async () => {
    const r = await wire.send('GET', '/.well-known/objectstack', { anonymous: true });
    assert.deepEqual([r.status, r.body.data.routes.data], [200, '/api/v1/data']);
  });
  const nobody = () => newClient({ token: undefined });
  await check('auth/anonymous data is refused', () => refused(() => nobody().data.find(object), 401, 'UNAUTHENTICATED'));
  await check('auth/config', async () => assert.equal((await client.auth.getConfig()).emailPassword.enabled, true));
  const { email, password } = client.credentials;
  await check('auth/login with a wrong password', () => refused(() => nobody().auth.login({ email, password: 'not the password' }), 401, 'INVALID_EMAIL_OR_PASSWORD'));
  await check('auth/login', async () => {
    const r = await client.auth.login({ email, password });
    assert.deepEqual([r.token, r.user.email], [client.token, email]);
  });
  await check('auth/me (get-session)', async () => {
    const r = await client.auth.me();
    assert.deepEqual([r.user.email, r.session.userId], [email, r.user.id]);
    assert.ok(Date.parse(r.session.expiresAt) > Date.now());
  });
  await check('auth/get-session without a session is null', async () => assert.equal(await nobody().auth.me(), null));
  await check('auth/mint an API key', async () => {
    const r = await client.keys.create({ name: 'calls' });
    assert.match(r.key, /^osk_/);
    assert.ok(r.key.startsWith(r.prefix) && r.id);
    state.key = r.key;
  });
  await check('auth/API key headers', async () => {
    for (const headers of [{ 'X-API-Key': state.key }, { Authorization: `Bearer ${state.key}` }, { Authorization: `ApiKey ${state.key}` }]) {
      assert.equal((await wire.send('GET', `/api/v1/data/${object}?top=1`, { anonymous: true, headers })).status, 200);
    }
  });
  return () =>
    check('auth/logout', async () => {
      const { token } = client;
      await client.auth.logout();
      assert.equal(client.token, undefined);
      const r = await wire.send('GET', `/api/v1/data/${object}?top=1`, { anonymous: true, headers: { Authorization: `Bearer ${token}` } });
      assert.equal(r.status, 401);
    });
}
