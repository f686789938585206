// Keeps a page fresh. Without this script each page is whole, but stands still.
'use strict';
(() => {
  const SILENT_AFTER = 12000; // The observer sends an event at least every 5 seconds.
  const STALE_AFTER = 30;
  const BETWEEN_REFRESHES = 500;
  const by = (id) => document.getElementById(id);
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy('page', { createHTML: (text) => text })
    : { createHTML: (text) => text };

  // The token in the fragment of a link stands for a cookie. A fragment is never sent anywhere.
  function signIn() {
    const fragment = new URLSearchParams(location.hash.slice(1));
    if (!fragment.has('t')) return false;
    history.replaceState(null, '', location.pathname + location.search);
    const headers = { Authorization: `Bearer ${fragment.get('t')}` };
    fetch('/v1/session', { method: 'POST', headers }).then((answer) => {
      if (answer.ok) location.reload();
      else if (by('sign-in-problem')) by('sign-in-problem').textContent = 'The token of this link is not accepted.';
    });
    return true;
  }
  addEventListener('hashchange', signIn);
  if (signIn()) return;
  const main = by('main');
  if (!by('freshness')) return;

  // How fresh the page is. `seen` is the last event, and `at` the time at which it came.
  let seen = null;
  let at = performance.now();
  const length = (seconds) => {
    if (seconds < 120) return `${Math.floor(seconds)} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return `${Math.floor(seconds / 3600)} h`;
  };
  const say = (id, text) => {
    if (by(id).textContent !== text) by(id).textContent = text;
  };
  function showAge() {
    const silent = performance.now() - at;
    const age = (seen && seen.age_seconds !== null ? seen.age_seconds : 0) + silent / 1000;
    const why = seen && seen.problem ? `: ${seen.problem}` : '';
    let band = '';
    if (silent > SILENT_AFTER) band = `STALE ${length(age)}: the observer does not answer`;
    else if (seen && seen.age_seconds === null) band = `The store has not been read yet${why}`;
    else if (seen && age > STALE_AFTER) band = `STALE ${length(age)}: the store is away${why}`;
    document.body.classList.toggle('stale', band !== '');
    say('band', band);
    by('band').hidden = band === '';
    if (seen) say('freshness', band ? 'stale' : `live, ${age < 10 ? age.toFixed(1) : Math.floor(age)} s`);
    if (seen && seen.revision) say('revision', `revision ${seen.revision}`);
    const now = new Date();
    const local = now.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
    say('clock', `${now.toISOString().slice(0, 19).replace('T', ' ')} UTC (${local} here)`);
  }

  // New content waits while somebody points at a table, selects text, or types.
  let waiting = null;
  const isBusy = () => {
    const focused = document.activeElement;
    return main.querySelector('tr:hover') !== null
      || !getSelection().isCollapsed
      || (main.contains(focused) && /^(INPUT|SELECT)$/.test(focused.tagName));
  };
  // What tells the focused element from others, also in new content.
  const pathOf = (element) => {
    if (element.id) return `#${CSS.escape(element.id)}`;
    if (element.tagName === 'A') return `a[href="${CSS.escape(element.getAttribute('href'))}"]`;
    return null;
  };
  function put(content) {
    const focused = main.contains(document.activeElement) ? pathOf(document.activeElement) : null;
    main.replaceChildren(...content.childNodes);
    main.dataset.revision = content.dataset.revision;
    decorate();
    if (focused && main.querySelector(focused)) main.querySelector(focused).focus({ preventScroll: true });
  }
  function offer() {
    if (waiting === null) return;
    if (isBusy()) {
      by('news').hidden = false;
      return;
    }
    by('news').hidden = true;
    put(waiting);
    waiting = null;
  }
  by('news').addEventListener('click', () => {
    by('news').hidden = true;
    if (waiting) put(waiting);
    waiting = null;
  });

  let refreshing = false;
  let again = false;
  async function refresh() {
    if (refreshing) {
      again = true;
      return;
    }
    refreshing = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: 'text/html' } });
      if (answer.status === 401) return location.reload();
      const text = policy.createHTML(await answer.text());
      const content = new DOMParser().parseFromString(text, 'text/html').getElementById('main');
      if (content && content.innerHTML !== shown) {
        shown = content.innerHTML;
        waiting = content;
        offer();
      }
      // An answer that takes long to make may be of an earlier revision.
      if (content && seen && content.dataset.revision !== String(seen.revision)) again = true;
    } catch {
      // The stream says whether the observer answers.
    } finally {
      await new Promise((done) => setTimeout(done, BETWEEN_REFRESHES));
      refreshing = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  }
  let shown = main.innerHTML;

  // One tab has the stream and passes its events on: browsers have few connections to a server.
  const channel = new BroadcastChannel('health');
  let id = null;
  function note(event) {
    seen = event.health;
    at = performance.now();
    if (id !== null && id !== event.id) refresh();
    else if (id === null && String(seen.revision) !== main.dataset.revision) refresh();
    id = event.id;
    showAge();
  }
  channel.onmessage = (message) => note(message.data);
  function stream(ended) {
    const source = new EventSource('/v1/stream');
    const end = () => {
      source.close();
      document.removeEventListener('visibilitychange', hide);
      ended();
    };
    const hide = () => {
      if (document.hidden) end();
    };
    source.addEventListener('health', (message) => {
      const event = { id: message.lastEventId, health: JSON.parse(message.data) };
      channel.postMessage(event);
      note(event);
    });
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
  async function follow() {
    for (;;) {
      await visible();
      // Without locks, which browsers have only for pages of this machine or with TLS, each tab has its own stream.
      if (navigator.locks) await navigator.locks.request('stream', leading);
      else await leading();
      if (!document.hidden) await isSignedIn();
    }
  }
  async function isSignedIn() {
    const answer = await fetch('/v1/health').catch(() => null);
    if (answer && answer.status === 401) location.reload();
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refresh();
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
    let cell = 0;
    for (const [verdict, count] of counts) {
      const name = verdict === 'suspect' ? 'failed' : verdict;
      const isVersion = /^\d+$/.test(name);
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
  showAge();
  setInterval(() => {
    showAge();
    offer();
  }, 1000);
  // A stream that begins earlier would keep the page from being loaded.
  if (document.readyState === 'complete') follow();
  else addEventListener('load', () => setTimeout(follow));
})();
