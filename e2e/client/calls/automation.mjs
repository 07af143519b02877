import assert from 'node:assert/strict';
import { eventually, refused } from '../harness.mjs';
import { signature } from '../receiver.mjs';

// Flows: definitions, runs, and what runs do.
export default async function ({ check, user: client, object, tag, receiver, state }) {
  const api = client.automation;
  const named = (name) => `calls_${tag}_${name}`;
  const node = (id, type, config, more = {}) => ({ id, type, label: id, ...(config && { config }), ...more });
  const edges = (...pairs) => pairs.map(([source, target, more], i) => ({ id: `e${i}`, source, target, ...more }));
  const variable = (name, type, more) => ({ name, type, ...more });
  const [input, output] = [{ isInput: true }, { isOutput: true }];
  const flow = (label, variables, nodes, ...pairs) => ({
    label, type: 'autolaunched', status: 'active', runAs: 'system', variables, nodes: [node('start', 'start'), ...nodes], edges: edges(...pairs),
  });
  const nowhere = node('call', 'http', { url: 'http://127.0.0.1:9/x', method: 'POST', timeoutMs: 800 });
  const end = node('end', 'end');
  const flows = {
    score: {
      ...flow('Score', [variable('amount', 'number', { ...input, defaultValue: 0 }), variable('tier', 'text', { ...output, defaultValue: 'none' })],
        [node('check', 'decision', { conditions: [{ label: 'big', expression: 'amount >= 1000' }] }), node('gold', 'assignment', { assignments: { tier: 'gold' } }),
          node('silver', 'assignment', { assignments: { tier: 'silver' } }), end],
        ['start', 'check'], ['check', 'gold', { label: 'big' }], ['check', 'silver', { isDefault: true }], ['gold', 'end'], ['silver', 'end']),
      successMessage: 'Scored',
    },
    records: flow('Records', [variable('nm', 'text', input), variable('made', 'object', output), variable('found', 'object', output), variable('seen', 'number', { ...output, defaultValue: 0 }), variable('rows', 'list')],
      [node('make', 'create_record', { objectName: object, fields: { name: '{nm}', annual_revenue: 7 }, outputVariable: 'made' }),
        node('change', 'update_record', { objectName: object, filter: { id: '{made.id}' }, fields: { annual_revenue: 8 } }),
        node('get', 'get_record', { objectName: object, filter: { id: '{made.id}' }, outputVariable: 'found' }),
        node('all', 'get_record', { objectName: object, filter: { name: '{nm}' }, limit: 5, outputVariable: 'rows' }),
        node('each', 'loop', { collection: '{rows}', iteratorVariable: 'row', indexVariable: 'i', body: { nodes: [node('inc', 'assignment', { assignments: { seen: '{i + 1}' } })], edges: [] } }),
        node('remove', 'delete_record', { objectName: object, filter: { id: '{made.id}' } }), end],
      ['start', 'make'], ['make', 'change'], ['change', 'get'], ['get', 'all'], ['all', 'each'], ['each', 'remove'], ['remove', 'end']),
    http: flow('Http', [variable('target', 'text', input), variable('status', 'number', output), variable('delivery', 'text', output)],
      [node('inline', 'http', { url: '{target}', method: 'POST', headers: { 'Content-Type': 'application/json' }, body: { hello: 'world' }, timeoutMs: 3000 }), node('s1', 'assignment', { assignments: { status: '{inline.status}' } }),
        node('durable', 'http', { url: '{target}', durable: true, headers: { 'X-Demo': '1' }, signingSecret: 's3cret', body: { durable: true } }), node('s2', 'assignment', { assignments: { delivery: '{durable.deliveryId}' } }), end],
      ['start', 'inline'], ['inline', 's1'], ['s1', 'durable'], ['durable', 's2'], ['s2', 'end']),
    fail: { ...flow('Fail', [], [nowhere, end], ['start', 'call'], ['call', 'end']), errorMessage: 'It broke' },
    fault: flow('Fault', [variable('why', 'text', output)], [nowhere, node('caught', 'assignment', { assignments: { why: '{$error.nodeId}' } }), end], ['start', 'call'], ['call', 'end'], ['call', 'caught', { type: 'fault' }]),
    parent: flow('Parent', [variable('child', 'object', output)], [node('sub', 'subflow', { flowName: named('score'), input: { amount: 2000 }, outputVariable: 'child' }), end], ['start', 'sub'], ['sub', 'end']),
    wait: flow('Wait', [variable('x', 'text', output)], [node('hold', 'wait', undefined, { waitEventConfig: { eventType: 'signal', signalName: 'go' } }), node('set', 'assignment', { assignments: { x: '{hold.got} {note}' } })], ['start', 'hold'], ['hold', 'set']),
    gated: { ...flow('Gated', [], [end], ['start', 'end']), nodes: [node('start', 'start', { condition: '1 == 2' }), end] },
    nostart: { ...flow('No start', [], []), nodes: [node('set', 'assignment', { assignments: { a: 1 } })], edges: [] },
    record: {
      label: 'On record', type: 'record_change', status: 'active', runAs: 'system',
      nodes: [node('start', 'start', { objectName: object, triggerType: 'record-after-update', condition: `record.name == "Trigger calls${tag}" && record.industry != "retail"` }),
        node('mark', 'update_record', { objectName: object, filter: { id: '{record.id}' }, fields: { industry: 'retail' } }), end],
      edges: edges(['start', 'mark'], ['mark', 'end']),
    },
  };
  await check('automation/register flows', async () => {
    for (const [name, definition] of Object.entries(flows)) assert.equal((await api.create(named(name), definition)).name, named(name));
  });
  await check('automation/list', async () => {
    const r = await api.list();
    assert.ok(r.flows.includes(named('score')) && r.total >= Object.keys(flows).length);
  });
  await check('automation/get', async () => {
    const r = await api.get(named('score'));
    assert.deepEqual([r.name, r.nodes.length, r.status], [named('score'), 5, 'active']);
  });
  await check('automation/execute: decision + assignment', async () => {
    const big = await api.execute(named('score'), { params: { amount: 5000 } });
    assert.deepEqual([big.success, big.output, big.successMessage, big.summary.nodes.length], [true, { tier: 'gold' }, 'Scored', 3]);
    assert.deepEqual((await api.execute(named('score'), { amount: 1 })).output, { tier: 'silver' });
  });
  await check('automation/legacy trigger path', async () => {
    const r = await api.trigger(named('score'), { amount: 2000 });
    assert.deepEqual([r.success, r.output.tier], [true, 'gold']);
  });
  await check('automation/execute: record nodes + loop', async () => {
    const r = await api.execute(named('records'), { params: { nm: `Flow calls${tag}` } });
    assert.deepEqual([r.output.made.name, r.output.found.annual_revenue, r.output.seen, r.summary.selected, r.summary.acted], [`Flow calls${tag}`, 8, 1, 2, 3]);
  });
  await check('automation/execute: http node inline + durable', async () => {
    const r = await api.execute(named('http'), { params: { target: `${receiver.base}/flow${tag}` } });
    assert.equal(r.output.status, 200);
    state.flowDelivery = r.output.delivery;
    const sent = await eventually('the durable call arrives', () => receiver.requests.find((x) => x.headers['x-objectstack-delivery'] === r.output.delivery));
    assert.deepEqual([sent.headers['x-objectstack-event'], sent.headers['x-objectstack-attempt'], sent.headers['x-demo'], sent.body], ['flow:durable', '1', '1', '{"durable":true}']);
    assert.equal(sent.headers['x-objectstack-signature'], signature('s3cret', sent.body));
  });
  await check('automation/durable row in sys_http_delivery', async () => {
    const r = await eventually('its row is success', async () => {
      const { record } = await client.data.get('sys_http_delivery', state.flowDelivery);
      return record.status === 'success' && record;
    });
    assert.deepEqual([r.source, r.ref_id, r.label, r.attempts, 'headers_json' in r], ['flow', 'durable', 'flow:durable', 1, false]);
  });
  await check('automation/a failing run rejects', async () => {
    const e = await refused(() => api.execute(named('fail'), {}), 400, 'FLOW_FAILED');
    assert.equal(e.details.errorMessage, 'It broke');
    assert.equal(e.details.summary.nodes.find((n) => n.nodeId === 'call').status, 'failure');
  });
  await check('automation/fault edge', async () => assert.deepEqual((await api.execute(named('fault'), {})).output, { why: 'call' }));
  await check('automation/subflow', async () => assert.deepEqual((await api.execute(named('parent'), {})).output.child, { tier: 'gold' }));
  await check('automation/wait + resume', async () => {
    const { success, status, runId } = await api.execute(named('wait'), {});
    assert.deepEqual([success, status, (await api.getRun(named('wait'), runId)).status], [true, 'paused', 'paused']);
    const r = await api.resume(named('wait'), runId, { inputs: { note: 'hi' }, output: { got: 'sig' } });
    assert.deepEqual([r.success, r.output.x], [true, 'sig hi']);
    await refused(() => api.resume(named('wait'), runId, {}), 404, 'RESOURCE_NOT_FOUND');
  });
  await check('automation/start condition not met', async () => assert.deepEqual((await api.execute(named('gated'), {})).output, { skipped: true, reason: 'condition_not_met' }));
  await check('automation/no start node', () => refused(() => api.execute(named('nostart'), {}), 422, 'FLOW_NO_START_NODE'));
  await check('automation/cycles and unknown node config keys are refused', async () => {
    const cycle = { ...flows.wait, edges: edges(['start', 'hold'], ['hold', 'set'], ['set', 'hold']) };
    await refused(() => api.create(named('bad'), cycle), 400, 'VALIDATION_FAILED');
    const bogus = { ...flows.fail, nodes: [node('start', 'start'), node('call', 'http', { url: 'http://127.0.0.1:9/x', bogus: 1 })], edges: edges(['start', 'call']) };
    await refused(() => api.create(named('bad'), bogus), 400, 'VALIDATION_FAILED');
  });
  await check('automation/record_change trigger', async () => {
    const { id } = await client.data.create(object, { name: `Trigger calls${tag}` });
    await client.data.update(object, id, { annual_revenue: 5 });
    await eventually('the flow has run', async () => (await client.data.get(object, id)).record.industry === 'retail');
  });
  await check('automation/unknown flow', () => refused(() => api.execute('no_such_flow', {}), 404, 'RESOURCE_NOT_FOUND'));
  await check('automation/runs', async () => {
    const { runs } = await api.listRuns(named('score'), { limit: 1 });
    assert.deepEqual([runs.length, runs[0].flowName, runs[0].status], [1, named('score'), 'completed']);
    assert.equal((await api.getRun(named('score'), runs[0].id)).id, runs[0].id);
  });
  await check('automation/toggle off -> FLOW_DISABLED', async () => {
    assert.deepEqual(await api.toggle(named('score'), false), { name: named('score'), enabled: false });
    await refused(() => api.execute(named('score'), {}), 409, 'FLOW_DISABLED');
    await api.toggle(named('score'), true);
  });
  await check('automation/invalid definition', async () => {
    const e = await refused(() => api.create(named('bad'), { label: 'Bad', type: 'nope', nodes: [], edges: [] }), 400, 'VALIDATION_FAILED');
    assert.equal(e.fields[0].field, 'type');
  });
  await check('automation/action descriptors', async () => {
    const types = (await api.listActions()).actions.map((a) => a.type);
    for (const kind of ['decision', 'assignment', 'loop', 'http', 'get_record', 'subflow']) assert.ok(types.includes(kind), kind);
  });
  await check('automation/delete flow', async () => {
    for (const name of Object.keys(flows)) assert.deepEqual(await api.delete(named(name)), { name: named(name), deleted: true });
  });
}
