import assert from 'node:assert/strict';

// What stands around records: plugins, notifications, languages, organizations, permissions, events.
export default async function ({ check, user: client, object, wire, state }) {
  await check('realtime/a delivered event satisfies the SDK event schema', async () => {
    const got = [];
    const off = client.events.subscribeData(object, (e) => got.push(e));
    client.events._bufferEvent({ type: state.event.type, object, payload: state.event, timestamp: state.event.timestamp });
    await new Promise((wake) => setTimeout(wake, 2300)); // the client looks at its buffer every two seconds
    off();
    assert.deepEqual(got.map((e) => e.recordId), [state.event.recordId]);
  });
  await check('peripheral/packages', async () => {
    const { packages } = await client.packages.list();
    const rest = packages.find((p) => p.manifest.id === 'com.objectstack.service.rest');
    assert.deepEqual([rest.status, rest.enabled, rest.manifest.objects], ['installed', true, ['sys_notification']]);
  });
  await check('peripheral/notifications', async () => {
    const me = (await client.auth.me()).user.id;
    await client.data.create('sys_notification', { recipient_id: me, title: 'Checked' });
    const { notifications, unreadCount } = await client.notifications.list({ read: false });
    assert.deepEqual([notifications[0].title, unreadCount >= 1], ['Checked', true]);
    assert.equal((await client.notifications.markRead([notifications[0].id])).readCount, 1);
    await client.notifications.markAllRead();
    assert.equal((await client.notifications.list()).unreadCount, 0);
  });
  await check('peripheral/i18n locales', async () => assert.deepEqual((await client.i18n.getLocales()).locales, [{ code: 'en', label: 'English', isDefault: true }]));
  await check('peripheral/organizations', async () => assert.ok((await client.organizations.list()).organizations.length >= 1));
  await check('peripheral/console: me/permissions', async () => {
    const r = await wire.send('GET', '/api/v1/auth/me/permissions', { headers: { Authorization: `Bearer ${client.token}` } });
    assert.deepEqual([r.status, r.body.authenticated, r.body.objects['*'].allowRead], [200, true, true]);
  });
}
