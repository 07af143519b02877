import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// What a client learns before it calls: discovery, health, and that it needs a key.
export default async function ({ check, client, newClient, wire, object }) {
  await check('connect() reads routes, services and capabilities', async () => {
    const d = await newClient({ token: undefined }).connect();
    for (const [name, route] of Object.entries({ data: '/api/v1/data', metadata: '/api/v1/meta', auth: '/api/v1/auth', automation: '/api/v1/automation' })) {
      assert.equal(d.routes[name], route, `routes.${name}`);
    }
    assert.match(d.environment, /^(production|sandbox|development)$/);
    assert.ok(d.version && d.name, 'version and name');
    for (const name of ['data', 'metadata']) assert.deepEqual([d.services[name].enabled, d.services[name].status], [true, 'available'], name);
    for (const [name, s] of Object.entries(d.services)) {
      assert.equal(typeof s.enabled, 'boolean', `services.${name}.enabled`);
      assert.match(s.status, /^(available|registered|unavailable|degraded|stub)$/, `services.${name}.status`);
    }
    for (const [name, c] of Object.entries(d.capabilities)) assert.equal(typeof c.enabled, 'boolean', `capabilities.${name}`);
  });

  await check('a service that is missing is told as unavailable, and its path as unknown', async () => {
    const d = await client.connect();
    assert.deepEqual([d.services.ai.enabled, d.services.ai.status], [false, 'unavailable']);
    const r = await wire.send('GET', '/api/v1/ai/models');
    assert.deepEqual([r.status, r.body.success, r.body.error.code], [404, false, 'ENDPOINT_NOT_FOUND']);
  });

  await check('/.well-known/objectstack says the same in an envelope', async () => {
    const known = await wire.send('GET', '/.well-known/objectstack', { anonymous: true });
    const direct = await wire.send('GET', '/api/v1/discovery', { anonymous: true });
    assert.equal(known.status, 200);
    assert.deepEqual(known.body.data.routes, direct.body.routes);
    assert.equal(known.body.success, true);
  });

  await check('health and readiness answer anybody', async () => {
    for (const where of ['/api/v1/health', '/api/v1/ready']) {
      const r = await wire.send('GET', where, { anonymous: true });
      assert.deepEqual([r.status, r.body.success, typeof r.body.data.status], [200, true, 'string'], where);
    }
  });

  await check('without a key, data is refused in the flat envelope', async () => {
    await refused(() => newClient({ token: undefined }).data.find(object), 401, 'UNAUTHENTICATED');
    const { error, code, message } = JSON.parse(wire.last.text);
    assert.deepEqual([error, code, typeof message], ['UNAUTHENTICATED', 'UNAUTHENTICATED', 'string']);
  });

  await check('with a wrong key, too', () => refused(() => newClient({ token: 'osk_wrong' }).data.find(object), 401, 'UNAUTHENTICATED'));

  await check('a key is taken in each of its three headers', async () => {
    for (const headers of [{ 'X-API-Key': wire.key }, { Authorization: `Bearer ${wire.key}` }, { Authorization: `ApiKey ${wire.key}` }]) {
      const r = await wire.send('GET', `/api/v1/data/${object}?top=1`, { anonymous: true, headers });
      assert.equal(r.status, 200, Object.keys(headers)[0]);
    }
  });

  await check('keys.create() shows a new key once, and it works', async () => {
    const made = await client.keys.create({ name: 'checks' });
    assert.equal(wire.last.status, 201);
    assert.match(made.key, /^osk_[A-Za-z0-9_-]{43}$/);
    assert.equal(made.prefix, made.key.slice(0, 12));
    assert.equal((await newClient({ token: made.key }).data.find(object, { limit: 1 })).object, object);
  });

  await check('an unknown route and a wrong method are told apart', async () => {
    const unknown = await wire.send('GET', '/api/v1/nothing-here');
    assert.deepEqual([unknown.status, unknown.body.success, unknown.body.error.code], [404, false, 'ENDPOINT_NOT_FOUND']);
    const wrong = await wire.send('PUT', `/api/v1/data/${object}/some-id`, { body: {} });
    assert.deepEqual([wrong.status, wrong.body.success, wrong.body.error.code], [405, false, 'METHOD_NOT_ALLOWED']);
    assert.match(wrong.headers.get('allow'), /PATCH/);
  });
}
