import assert from 'node:assert/strict';
import { eventually, refused } from '../harness.mjs';
import { signature } from '../receiver.mjs';

// Flows.
export default async function ({ check, client, wire, receiver, object, tag }) {
  const node = (id, type, config, more = {}) => ({ id, type, label: id, ...(config && { config }), ...more });
  // path makes edges from the names of nodes: path('start', 'a', 'end') is two edges.
  const path = (...nodes) => nodes.slice(1).map((target, i) => ({ id: `${nodes[i]}_${target}`, source: nodes[i], target }));
  const variable = (name, type, more = {}) => ({ name, type, ...more });
  const out = { isOutput: true };
  const flow = (nodes, edges, more = {}) => ({ label: 'Check', type: 'autolaunched', status: 'active', runAs: 'system', nodes: [node('start', 'start'), ...nodes], edges, ...more });
  const named = (name) => `checks_${tag}_${name}`;
  const made = [];
  const register = async (name, definition) => {
    const r = await client.automation.create(named(name), definition);
    made.push(named(name));
    assert.equal(r.name, named(name));
    return named(name);
  };
  const grade = flow(
    [node('ask', 'decision', { conditions: [{ label: 'many', expression: 'count >= 10' }] }), node('yes', 'assignment', { assignments: { answer: 'many' } }), node('no', 'assignment', { assignments: { answer: 'few' } }), node('end', 'end')],
    [...path('start', 'ask'), { id: 'big', source: 'ask', target: 'yes', label: 'many' }, { id: 'small', source: 'ask', target: 'no', isDefault: true }, ...path('yes', 'end'), ...path('no', 'end')],
    { variables: [variable('count', 'number', { isInput: true, defaultValue: 0 }), variable('answer', 'text', out)], successMessage: 'Graded' },
  );

  await check('create, list and get a flow', async () => {
    const name = await register('grade', grade);
    const list = await client.automation.list();
    assert.ok(list.flows.includes(name) && typeof list.total === 'number');
    const got = await client.automation.get(name);
    assert.deepEqual([got.name, got.status, got.nodes.length, got.edges.length], [name, 'active', 5, 5]);
  });

  await check('execute takes its inputs from params or from the body itself', async () => {
    const many = await client.automation.execute(named('grade'), { params: { count: 12 } });
    assert.deepEqual([many.success, many.output, many.successMessage, typeof many.durationMs], [true, { answer: 'many' }, 'Graded', 'number']);
    assert.deepEqual((await client.automation.execute(named('grade'), { count: 3 })).output, { answer: 'few' });
    assert.deepEqual((await client.automation.execute(named('grade'), {})).output, { answer: 'few' }, 'the default value');
    const old = await client.automation.trigger(named('grade'), { count: 12 });
    assert.equal((old.data?.output ? old.data : old).output.answer, 'many', 'the older path');
  });

  await check('nodes create, change, read, loop over and delete records', async () => {
    const name = await register('records', flow(
      [
        node('make', 'create_record', { objectName: object, fields: { name: '{title}', annual_revenue: 1 }, outputVariable: 'fresh' }),
        node('change', 'update_record', { objectName: object, filter: { id: '{fresh.id}' }, fields: { annual_revenue: 2 } }),
        node('read', 'get_record', { objectName: object, filter: { name: '{title}' }, limit: 5, outputVariable: 'rows' }),
        node('each', 'loop', { collection: '{rows}', iteratorVariable: 'row', indexVariable: 'i', body: { nodes: [node('note', 'assignment', { assignments: { seen: '{i + 1}' } })], edges: [] } }),
        node('drop', 'delete_record', { objectName: object, filter: { id: '{fresh.id}' } }), node('end', 'end'),
      ],
      path('start', 'make', 'change', 'read', 'each', 'drop', 'end'),
      { variables: [variable('title', 'text', { isInput: true }), variable('fresh', 'object', out), variable('rows', 'list', out), variable('seen', 'number', out)] },
    ));
    const { output } = await client.automation.execute(name, { params: { title: `flow ${tag}` } });
    assert.deepEqual([output.fresh.name, output.rows.map((r) => r.annual_revenue), output.seen], [`flow ${tag}`, [2], 1]);
    assert.equal((await client.data.query(object, { where: { name: `flow ${tag}` }, limit: 1 })).total, 0);
  });

  await check('the http node calls at once, or leaves a signed delivery', async () => {
    const name = await register('http', flow(
      [
        node('now', 'http', { url: '{target}', method: 'POST', headers: { 'Content-Type': 'application/json' }, body: { now: true }, timeoutMs: 3000 }),
        node('keep', 'assignment', { assignments: { status: '{now.status}', reply: '{now.response}' } }),
        node('later', 'http', { url: '{target}', durable: true, headers: { 'X-Check': 'yes' }, signingSecret: 'flow-secret', body: { later: true } }),
        node('id', 'assignment', { assignments: { delivery: '{later.deliveryId}' } }), node('end', 'end'),
      ],
      path('start', 'now', 'keep', 'later', 'id', 'end'),
      { variables: [variable('target', 'text', { isInput: true }), variable('status', 'number', out), variable('reply', 'object', out), variable('delivery', 'text', out)] },
    ));
    const { output } = await client.automation.execute(name, { params: { target: `${receiver.base}/flow-http` } });
    assert.deepEqual([output.status, output.reply], [200, { received: true }]);
    const [now, later] = await receiver.wait('/flow-http', 2);
    assert.deepEqual([now.json, later.body], [{ now: true }, '{"later":true}']);
    const h = later.headers;
    assert.deepEqual([h['x-objectstack-delivery'], h['x-objectstack-event'], h['x-objectstack-attempt'], h['x-check']], [output.delivery, 'flow:later', '1', 'yes']);
    assert.equal(h['x-objectstack-signature'], signature('flow-secret', later.body));
    const row = await eventually('the delivery has ended', async () => {
      const r = (await client.data.get('sys_http_delivery', output.delivery)).record;
      return r.status === 'success' && r;
    });
    assert.deepEqual([row.source, row.ref_id, row.label, row.attempts], ['flow', 'later', 'flow:later', 1]);
  });

  // Nothing listens on port 9 of this machine.
  const failing = node('call', 'http', { url: 'http://127.0.0.1:9/', method: 'POST', timeoutMs: 1000 });

  await check('a run that fails is thrown, with its message and summary', async () => {
    const name = await register('fail', flow([failing, node('end', 'end')], path('start', 'call', 'end'), { errorMessage: 'It broke' }));
    const e = await refused(() => client.automation.execute(name, {}), 400, 'FLOW_FAILED');
    assert.equal(e.details.errorMessage, 'It broke');
    assert.deepEqual(e.details.summary.nodes.filter((n) => n.status === 'failure').map((n) => n.nodeId), ['call']);
  });

  await check('a fault edge takes a failure', async () => {
    const name = await register('fault', flow(
      [failing, node('caught', 'assignment', { assignments: { why: '{$error.nodeId}' } }), node('end', 'end')],
      [...path('start', 'call', 'end'), { id: 'fault', source: 'call', target: 'caught', type: 'fault' }], { variables: [variable('why', 'text', out)] },
    ));
    const r = await client.automation.execute(name, {});
    assert.deepEqual([r.success, r.output.why], [true, 'call']);
  });

  await check('a subflow hands back its output', async () => {
    const name = await register('outer', flow(
      [node('inner', 'subflow', { flowName: named('grade'), input: { count: 99 }, outputVariable: 'result' }), node('end', 'end')],
      path('start', 'inner', 'end'), { variables: [variable('result', 'object', out)] },
    ));
    assert.deepEqual((await client.automation.execute(name, {})).output.result, { answer: 'many' });
  });

  await check('a run that waits is resumed once', async () => {
    const name = await register('wait', flow(
      [node('hold', 'wait', undefined, { waitEventConfig: { eventType: 'signal', signalName: 'go' } }), node('join', 'assignment', { assignments: { text: '{hold.word} {note}' } })],
      path('start', 'hold', 'join'), { variables: [variable('text', 'text', out)] },
    ));
    const paused = await client.automation.execute(name, {});
    assert.deepEqual([paused.success, paused.status], [true, 'paused']);
    assert.equal((await client.automation.getRun(name, paused.runId)).status, 'paused');
    const r = await client.automation.resume(name, paused.runId, { inputs: { note: 'on' }, output: { word: 'go' } });
    assert.deepEqual([r.success, r.output.text], [true, 'go on']);
    await assert.rejects(() => client.automation.resume(name, paused.runId, {}), (e) => e.httpStatus === 404);
  });

  await check('a start condition that is not met skips the run', async () => {
    const name = await register('gated', { ...flow([node('end', 'end')], path('start', 'end')), nodes: [node('start', 'start', { condition: '1 == 2' }), node('end', 'end')] });
    const r = await client.automation.execute(name, {});
    assert.deepEqual([r.success, r.output], [true, { skipped: true, reason: 'condition_not_met' }]);
  });

  await check("a record's change starts a flow", async () => {
    await register('changed', {
      ...flow([], path('start', 'mark', 'end'), { type: 'record_change' }),
      nodes: [
        node('start', 'start', { objectName: object, triggerType: 'record-after-update', condition: `record.name == "watched ${tag}" && record.industry != "retail"` }),
        node('mark', 'update_record', { objectName: object, filter: { id: '{record.id}' }, fields: { industry: 'retail' } }), node('end', 'end'),
      ],
    });
    const { id } = await client.data.create(object, { name: `watched ${tag}` });
    await client.data.update(object, id, { annual_revenue: 1 });
    await eventually('the flow has marked the record', async () => (await client.data.get(object, id)).record.industry === 'retail');
  });

  await check('runs are listed with their steps', async () => {
    const { runs } = await client.automation.listRuns(named('grade'), { limit: 1 });
    assert.equal(runs.length, 1);
    assert.deepEqual([runs[0].flowName, runs[0].status], [named('grade'), 'completed']);
    assert.ok(runs[0].steps.length > 0 && runs[0].startedAt && runs[0].trigger);
    assert.equal((await client.automation.getRun(named('grade'), runs[0].id)).id, runs[0].id);
  });

  await check('a flow that is switched off does not run', async () => {
    assert.deepEqual(await client.automation.toggle(named('grade'), false), { name: named('grade'), enabled: false });
    await refused(() => client.automation.execute(named('grade'), {}), 409, 'FLOW_DISABLED');
    await client.automation.toggle(named('grade'), true);
    assert.equal((await client.automation.execute(named('grade'), {})).success, true);
  });

  await check('wrong definitions are refused, and what cannot start is told when it runs', async () => {
    const e = await refused(() => client.automation.create(named('bad'), { ...grade, type: 'nothing' }), 400, 'VALIDATION_FAILED');
    assert.equal(e.fields[0].field, 'type');
    await refused(() => client.automation.create(named('bad'), { ...grade, edges: [...grade.edges, { id: 'back', source: 'yes', target: 'ask' }] }), 400, 'VALIDATION_FAILED');
    await refused(() => client.automation.create(named('bad'), flow([node('call', 'http', { url: 'x', unheard: 1 })], path('start', 'call'))), 400, 'VALIDATION_FAILED');
    const name = await register('nostart', { ...flow([], []), nodes: [node('only', 'assignment', { assignments: { a: 1 } })] });
    await refused(() => client.automation.execute(name, {}), 422, 'FLOW_NO_START_NODE');
    await assert.rejects(() => client.automation.execute('no_such_flow', {}), (x) => x.httpStatus === 404);
  });

  await check('the kinds of nodes are listed', async () => {
    const kinds = (await client.automation.listActions()).actions.map((a) => a.type);
    for (const kind of ['decision', 'assignment', 'loop', 'http', 'get_record', 'create_record', 'update_record', 'delete_record', 'subflow', 'wait']) assert.ok(kinds.includes(kind), kind);
  });

  await check('flows are deleted', async () => {
    for (const name of made) assert.deepEqual(await client.automation.delete(name), { name, deleted: true });
    await assert.rejects(() => client.automation.get(named('grade')), (e) => e.httpStatus === 404);
  });
}
