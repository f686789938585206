// Keeps a page fresh. Without this script each page is whole, but stands still.
'use strict';
(() => {
  // The observer may be shown below a path.
  const BASE = new URL('.', document.currentScript.src).pathname;
  const SILENT_AFTER = 12000; // The observer sends an event at least every 5 seconds.
  const STALE_AFTER = 30;
  const BEHIND_AFTER = 10000;
  const REFRESH_EVERY = 10000; // Incidents and times change without a revision.
  const REFRESH_PAUSE = 500;
  const REFRESH_PAUSE_MAX = 5000;
  const by = (id) => document.getElementById(id);
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy('page', { createHTML: (text) => text })
    : { createHTML: (text) => text };

  // The token in the fragment of a link stands for a cookie. A fragment is never sent anywhere.
  async function signIn() {
    const token = new URLSearchParams(location.hash.slice(1)).get('t');
    if (token === null) return;
    // The cookie is valid below the path of the proxy, also for who asks the observer itself.
    const above = location.pathname.startsWith(BASE) ? '' : BASE.slice(0, -1);
    const path = above + location.pathname + location.search;
    history.replaceState(null, '', path);
    const headers = { Authorization: `Bearer ${token}` };
    const answer = await fetch(`${BASE}v1/session`, { method: 'POST', headers }).catch(() => null);
    if (answer && answer.ok) location.replace(path);
    else if (by('sign-in-problem')) {
      const isRefused = answer && answer.status === 401;
      by('sign-in-problem').textContent = isRefused
        ? 'The token of this link is not accepted.'
        : `The observer did not take the token: ${answer ? `code ${answer.status}` : 'it does not answer'}.`;
    }
  }
  addEventListener('hashchange', signIn);
  signIn();
  const main = by('main');
  // A moment of the past does not change.
  const isPast = by('past') !== null;
  if (!isPast && !by('freshness')) return;

  // The last event of the stream, and when it came. Some clocks stand still while the machine sleeps.
  let seen = null;
  let at = [performance.now(), Date.now()];
  const silence = () => Math.max(performance.now() - at[0], Date.now() - at[1]);
  // Since when the page shows another revision than the observer has.
  let behindSince = null;
  const length = (seconds) => {
    if (seconds < 120) return `${Math.floor(seconds)} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return `${Math.floor(seconds / 3600)} h`;
  };
  const say = (id, text) => {
    if (by(id).textContent !== text) by(id).textContent = text;
  };
  const isBehind = () => seen !== null && main.dataset.revision !== String(seen.revision ?? '');
  function showAge() {
    const silent = silence();
    // What the server said about the age holds until the first event.
    if (seen === null && silent <= SILENT_AFTER) return;
    const age = (seen?.age_seconds ?? 0) + silent / 1000;
    let problem = '';
    if (silent > SILENT_AFTER) problem = 'The observer does not answer.';
    else if (seen.age_seconds === null) problem = 'The store has not been read yet.';
    else if (age > STALE_AFTER) problem = 'The store is away.';
    document.body.classList.toggle('stale', problem !== '');
    by('band').hidden = problem === '';
    // Only this is read out. The age beside it changes each second.
    say('band-problem', problem);
    say('band-age', problem && seen?.age_seconds !== null ? `STALE ${length(age)}` : '');
    say('band-why', problem && silent <= SILENT_AFTER && seen.problem ? seen.problem : '');
    const behind = behindSince === null ? 0 : Date.now() - behindSince;
    let freshness = `live, ${age < 10 ? age.toFixed(1) : Math.floor(age)} s`;
    if (problem) freshness = 'stale';
    else if (behind > BEHIND_AFTER) freshness = `not refreshed for ${length(behind / 1000)}`;
    say('freshness', freshness);
  }
  function showTime() {
    const now = new Date();
    const local = now.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
    say('clock', `${now.toISOString().slice(0, 19).replace('T', ' ')} UTC (${local} here)`);
  }

  // New content waits while somebody points at a table, selects text, or types.
  let shown = main.innerHTML;
  let waiting = null;
  const isBusy = () =>
    main.querySelector('tr:hover') !== null
    || !getSelection().isCollapsed
    || (main.contains(document.activeElement) && /^(INPUT|SELECT)$/.test(document.activeElement.tagName));
  // The focused element is found again by what it is, and by its number among equal ones.
  const keyOf = (element) =>
    `${element.tagName} ${element.getAttribute('href') ?? element.getAttribute('aria-label') ?? element.className}`;
  const alike = (key) => [...main.querySelectorAll('a, button, [tabindex]')].filter((one) => keyOf(one) === key);
  function put(content) {
    const focused = main.contains(document.activeElement) ? document.activeElement : null;
    const key = focused && focused !== main ? keyOf(focused) : null;
    const number = key === null ? 0 : alike(key).indexOf(focused);
    main.replaceChildren(...content.childNodes);
    main.dataset.revision = content.dataset.revision;
    say('revision', content.dataset.revision ? `revision ${content.dataset.revision}` : '');
    decorate();
    if (focused) (key === null ? main : (alike(key)[number] ?? alike(key)[0] ?? main)).focus({ preventScroll: true });
    noteBehind();
  }
  function offer() {
    if (waiting === null) return;
    by('news').hidden = !isBusy();
    if (isBusy()) return;
    put(waiting);
    waiting = null;
  }
  by('news')?.addEventListener('click', () => {
    by('news').hidden = true;
    if (waiting) put(waiting);
    waiting = null;
    main.focus({ preventScroll: true });
  });
  function noteBehind() {
    if (!isBehind()) behindSince = null;
    else behindSince ??= Date.now();
  }

  let refreshing = false;
  let again = false;
  let pause = REFRESH_PAUSE;
  async function refresh() {
    if (refreshing) {
      again = true;
      return;
    }
    refreshing = true;
    let isCurrent = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: 'text/html' } });
      if (answer.status === 401) return location.reload();
      // An observer that cannot answer now takes nothing away from what is known.
      if (answer.ok || answer.status === 404 || answer.status === 400) {
        const text = policy.createHTML(await answer.text());
        const content = new DOMParser().parseFromString(text, 'text/html').getElementById('main');
        isCurrent = content.dataset.revision === String(seen?.revision ?? '');
        if (content.innerHTML === shown) (waiting ?? main).dataset.revision = content.dataset.revision;
        else {
          shown = content.innerHTML;
          waiting = content;
        }
        offer();
        if (waiting === null) say('revision', content.dataset.revision ? `revision ${content.dataset.revision}` : '');
        noteBehind();
      }
    } catch {
      // The stream says whether the observer answers.
    }
    // An answer that takes long to make may be of an earlier revision.
    pause = isCurrent ? REFRESH_PAUSE : Math.min(pause * 2, REFRESH_PAUSE_MAX);
    await new Promise((done) => setTimeout(done, pause));
    refreshing = false;
    if ((again || !isCurrent) && !document.hidden) {
      again = false;
      refresh();
    }
  }

  // One tab has the stream and passes its events on: browsers have few connections to a server.
  const channel = new BroadcastChannel(`health ${BASE}`);
  function note(health) {
    seen = health;
    at = [performance.now(), Date.now()];
    document.body.dataset.followed = 'true';
    noteBehind();
    if (isBehind() && !document.hidden) refresh();
    showAge();
  }
  channel.onmessage = (message) => note(message.data);
  function tell(health) {
    channel.postMessage(health);
    note(health);
  }
  function stream(ended) {
    const source = new EventSource(`${BASE}v1/stream`);
    const end = () => {
      source.close();
      document.removeEventListener('visibilitychange', hide);
      ended();
    };
    const hide = () => {
      if (document.hidden) end();
    };
    source.addEventListener('health', (message) => tell(JSON.parse(message.data)));
    // A browser does not connect again after an answer that is an error.
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) setTimeout(end, 1000 + Math.random() * 2000);
    };
    document.addEventListener('visibilitychange', hide);
  }
  const leading = () => new Promise((ended) => (document.hidden ? ended() : stream(ended)));
  const visible = () => new Promise((done) => {
    if (!document.hidden) return done();
    document.addEventListener('visibilitychange', done, { once: true });
  });
  // Asks once how fresh the observer is: the stream may have been refused because too many follow it.
  async function askHealth() {
    const answer = await fetch(`${BASE}v1/health`).catch(() => null);
    if (answer && answer.status === 401) return location.reload();
    const health = answer && (answer.ok || answer.status === 503) ? await answer.json().catch(() => null) : null;
    if (health) tell(health);
  }
  async function follow() {
    for (;;) {
      await visible();
      // Without locks, which browsers have only for pages of this machine or with TLS, each tab has its own stream.
      if (navigator.locks) await navigator.locks.request(`stream ${BASE}`, leading);
      else await leading();
      if (!document.hidden) await askHealth();
    }
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !isPast) refresh();
  });

  // A cell for each host of a group, the exceptions first.
  const SHAPES = { failed: '×', suspect: '×', lost: '○', blocked: '■', frozen: '❙', waiting: '◔', running: '▸' };
  function drawCells(canvas) {
    canvas.hidden = false;
    const counts = canvas.dataset.cells.split(' ').map((part) => part.split(':'));
    const total = counts.reduce((sum, [, count]) => sum + Number(count), 0);
    const size = total > 2000 ? 5 : total > 300 ? 9 : 13;
    const columns = Math.max(1, Math.floor((canvas.clientWidth || 160) / size));
    const rows = Math.ceil(total / columns);
    const scale = window.devicePixelRatio || 1;
    canvas.width = columns * size * scale;
    canvas.height = rows * size * scale;
    canvas.style.width = `${columns * size}px`;
    canvas.style.height = `${rows * size}px`;
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.font = `${size}px sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    const style = getComputedStyle(document.documentElement);
    const isVersion = /^\d/.test(canvas.dataset.cells);
    let cell = 0;
    for (const [kind, count] of counts) {
      const name = kind === 'suspect' ? 'failed' : kind;
      context.fillStyle = style.getPropertyValue(isVersion ? '--front' : name === 'ok' ? '--line' : `--${name}`);
      context.globalAlpha = isVersion ? Math.max(0.25, 1 - name * 0.15) : 1;
      for (let number = 0; number < Number(count); number += 1, cell += 1) {
        const x = (cell % columns) * size;
        const y = Math.floor(cell / columns) * size;
        if (name === 'ok') context.fillRect(x + size * 0.3, y + size * 0.3, size * 0.4, size * 0.4);
        else if (size < 9) context.fillRect(x, y, size - 1, size - 1);
        else context.fillText(isVersion ? name : SHAPES[name] || '?', x + size / 2, y + size / 2);
      }
    }
    if (isVersion) return;
    canvas.onclick = (event) => {
      const place = Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size);
      let end = 0;
      const found = counts.findIndex(([, count]) => place < (end += Number(count)));
      const links = canvas.parentElement.querySelectorAll('a');
      if (found >= 0 && links[found]) links[found].click();
    };
  }
  function decorate() {
    main.querySelectorAll('canvas.cells').forEach(drawCells);
    main.querySelectorAll('time').forEach((time) => {
      const date = new Date(time.dateTime);
      if (!Number.isNaN(date.getTime())) time.title = `${date.toLocaleString()} here`;
    });
    // Browsers have a clipboard only for pages of this machine or with TLS.
    if (!navigator.clipboard) return;
    main.querySelectorAll('code.command').forEach((code) => {
      const copy = document.createElement('button');
      copy.type = 'button';
      copy.className = 'copy';
      copy.textContent = 'copy';
      copy.setAttribute('aria-label', `copy ${code.textContent}`);
      copy.addEventListener('click', async () => {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = 'copied';
      });
      code.after(copy);
    });
  }

  document.addEventListener('keydown', (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === '/' && !isTyping && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      by('search').focus();
    }
  });
  let width = innerWidth;
  addEventListener('resize', () => {
    if (width === innerWidth) return;
    width = innerWidth;
    main.querySelectorAll('canvas.cells').forEach((canvas) => {
      canvas.style.width = '';
      drawCells(canvas);
    });
  });
  decorate();
  showTime();
  if (isPast) return;
  setInterval(() => {
    showAge();
    showTime();
    offer();
  }, 1000);
  setInterval(() => {
    if (!document.hidden) refresh();
  }, REFRESH_EVERY);
  // A stream that begins earlier would keep the page from being loaded.
  if (document.readyState === 'complete') follow();
  else addEventListener('load', () => setTimeout(follow));
})();
