import assert from 'node:assert/strict';
import { refused } from '../harness.mjs';

// Refusals, as the client throws them.
export default async function ({ check, user: client, object, tag, wire, state }) {
  const { id, code } = state;
  const data = client.data;
  const field = async (call, code, ...path) => {
    const e = await refused(call, 400, 'VALIDATION_FAILED');
    assert.deepEqual(e.fields.map((f) => f.code), [code, ...path]);
    return e;
  };
  await check('errors/unknown object', () => refused(() => data.find('no_such_object'), 404, 'OBJECT_NOT_FOUND'));
  await check('errors/unknown record: get', () => refused(() => data.get(object, 'doesnotexist'), 404, 'RECORD_NOT_FOUND'));
  await check('errors/unknown record: update', () => refused(() => data.update(object, 'doesnotexist', { name: 'x' }), 404, 'RECORD_NOT_FOUND'));
  await check('errors/validation on create', async () => {
    const e = await field(() => data.create(object, { industry: 'zzz', annual_revenue: 'x' }), 'required', 'invalid_option', 'invalid_number');
    assert.deepEqual(e.fields.map((f) => f.field), ['name', 'industry', 'annual_revenue']);
  });
  await check('errors/a required field cannot be cleared', () => field(() => data.update(object, id, { name: null }), 'required'));
  await check('errors/min', () => field(() => data.create(object, { name: 'x', annual_revenue: -1 }), 'min_value'));
  await check('errors/maxLength', () => field(() => data.create(object, { name: 'x', code: 'x'.repeat(21) }), 'max_length'));
  await check('errors/unique violation', () => refused(() => data.create(object, { name: `twice ${tag}`, code }), 409, 'UNIQUE_VIOLATION'));
  await check('errors/unknown field in the body', () => refused(() => data.create(object, { name: 'x', nope_field: 1 }), 400, 'INVALID_FIELD'));
  await check('errors/filter on an unknown field', () => refused(() => data.query(object, { where: { nope: 1 } }), 400, 'INVALID_FIELD'));
  await check('errors/unknown filter operator', () => refused(() => data.query(object, { where: { annual_revenue: { $foo: 1 } } }), 400, 'INVALID_FILTER'));
  await check('errors/malformed filter array', () => refused(() => data.find(object, { filter: ['annual_revenue', '~~', 3] }), 400, 'INVALID_FILTER'));
  const raw = async (method, path, status, code, options) => {
    const r = await wire.send(method, path, options);
    assert.deepEqual([r.status, r.body.code ?? r.body.error.code], [status, code]);
    return r;
  };
  await check('errors/filter that is not JSON', () => raw('GET', `/api/v1/data/${object}?filter=%7Bbad`, 400, 'INVALID_FILTER'));
  await check('errors/unknown select field', () => refused(() => data.find(object, { select: ['nope'] }), 400, 'INVALID_FIELD'));
  await check('errors/unknown sort field', () => refused(() => data.find(object, { sort: 'nope' }), 400, 'INVALID_SORT'));
  await check('errors/unknown query parameter', () => raw('GET', `/api/v1/data/${object}?pageSize=3`, 400, 'INVALID_FIELD'));
  await check('errors/unknown route', async () => assert.equal((await raw('GET', '/api/v1/zzz', 404, 'ENDPOINT_NOT_FOUND')).body.success, false));
  await check('errors/wrong method', async () => {
    const r = await raw('PUT', `/api/v1/data/${object}/${id}`, 405, 'METHOD_NOT_ALLOWED', { body: {} });
    assert.deepEqual(r.body.error.details.allowed, ['DELETE', 'GET', 'HEAD', 'PATCH']);
  });
}
