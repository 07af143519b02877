import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// How a refusal reaches the caller: HTTP status, code, the fields that are to blame.
export default async function ({ check, client, wire, object, tag }) {
  const post = (body, headers) => wire.send('POST', `/api/v1/data/${object}`, { body, headers });
  const codes = (e) => Object.fromEntries(e.fields.map((f) => [f.field, f.code]));

  await check('an unknown object is 404, for every call', async () => {
    for (const call of [
      () => client.data.find('no_such_object'), () => client.data.query('no_such_object', {}), () => client.data.get('no_such_object', 'x'),
      () => client.data.create('no_such_object', {}), () => client.data.delete('no_such_object', 'x'),
    ]) await refused(call, 404, 'OBJECT_NOT_FOUND');
  });

  await check('an unknown record is 404, for every call', async () => {
    for (const call of [() => client.data.get(object, 'unknown'), () => client.data.update(object, 'unknown', { name: 'x' }), () => client.data.delete(object, 'unknown')]) {
      await refused(call, 404, 'RECORD_NOT_FOUND');
    }
  });

  await check('validation names all fields that are wrong, with label and message', async () => {
    const e = await refused(() => client.data.create(object, { industry: 'space', annual_revenue: 'much', active: 'perhaps', code: 'c'.repeat(21) }), 400, 'VALIDATION_FAILED');
    assert.deepEqual(codes(e), { name: 'required', industry: 'invalid_option', annual_revenue: 'invalid_number', active: 'invalid_boolean', code: 'max_length' });
    for (const f of e.fields) assert.ok(f.message && f.label, f.field);
    assert.equal(e.fields.find((f) => f.field === 'annual_revenue').label, 'Annual revenue');
  });

  await check('values outside of their bounds', async () => {
    assert.deepEqual(codes(await refused(() => client.data.create(object, { name: 'x', annual_revenue: -0.01 }), 400, 'VALIDATION_FAILED')), { annual_revenue: 'min_value' });
    const digits = await post(`{"name":"x","annual_revenue":${'9'.repeat(39)}}`);
    assert.deepEqual([digits.status, digits.body.code, digits.body.fields[0].code], [400, 'VALIDATION_FAILED', 'invalid_number']);
    const nul = await post('{"name":"a\\u0000b"}');
    assert.deepEqual([nul.status, nul.body.code, nul.body.fields[0].field], [400, 'VALIDATION_FAILED', 'name']);
  });

  await check('a required field can neither be cleared nor be empty', async () => {
    const { id } = await client.data.create(object, { name: `e ${tag}` });
    for (const name of [null, '']) assert.deepEqual(codes(await refused(() => client.data.update(object, id, { name }), 400, 'VALIDATION_FAILED')), { name: 'required' });
  });

  await check('a unique value that is taken is 409, on create and on update', async () => {
    await client.data.create(object, { name: `e ${tag}`, code: `${tag}taken` });
    await refused(() => client.data.create(object, { name: `e ${tag}`, code: `${tag}taken` }), 409, 'UNIQUE_VIOLATION');
    const { id } = await client.data.create(object, { name: `e ${tag}` });
    await refused(() => client.data.update(object, id, { code: `${tag}taken` }), 409, 'UNIQUE_VIOLATION');
    assert.equal(JSON.parse(wire.last.text).field ?? 'code', 'code');
  });

  await check('an unknown field in a record is refused', async () => {
    await refused(() => client.data.create(object, { name: 'x', nope: 1 }), 400, 'INVALID_FIELD');
    assert.match(JSON.parse(wire.last.text).error, /nope/);
  });

  await check('bodies that are not one JSON object are refused', async () => {
    for (const body of ['', '{', '{"name":"a"} x', '[]', '"text"', '{"name":"a","name":"b"}']) {
      const r = await post(body);
      assert.equal(r.status, 400, body);
      assert.ok(r.body.code && typeof r.body.error === 'string', body);
    }
  });

  await check('the flat envelope has a text and a code, the wrapped one both inside', async () => {
    const flat = await wire.send('GET', '/api/v1/data/no_such_object');
    assert.deepEqual([typeof flat.body.error, flat.body.code, flat.body.object], ['string', 'OBJECT_NOT_FOUND', 'no_such_object']);
    const wrapped = await wire.send('GET', '/api/v1/nothing');
    assert.deepEqual([wrapped.body.success, wrapped.body.error.code, typeof wrapped.body.error.message], [false, 'ENDPOINT_NOT_FOUND', 'string']);
  });
}
