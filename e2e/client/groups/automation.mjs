import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Flows, on a host that has the automation service; on others, that it says so.
export default async function ({ check, leave, client, wire }) {
  const { services, routes } = await client.connect();
  if (!services.automation.enabled) {
    leave('flows', 'no automation service');
    await check('a host without flows lists their route, says so, and answers 404 there', async () => {
      assert.equal(routes.automation, '/api/v1/automation');
      assert.deepEqual([services.automation.enabled, services.automation.status], [false, 'unavailable']);
      await refused(() => client.automation.list(), 404, 'ENDPOINT_NOT_FOUND');
      await refused(() => client.automation.execute('some_flow', {}), 404, 'ENDPOINT_NOT_FOUND');
      assert.equal(JSON.parse(wire.last.text).success, false);
    });
    return;
  }
  await check('an unknown flow is 404', async () => {
    await assert.rejects(() => client.automation.execute('no_such_flow', {}), (e) => e.httpStatus === 404);
  });
  await check('the list of flows', async () => {
    const r = await client.automation.list();
    assert.ok(Array.isArray(r.flows) && typeof r.total === 'number');
  });
}
