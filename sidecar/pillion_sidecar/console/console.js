// The console of a deliverer, and of a cluster. It shows what an API answers: each text of an answer
// becomes text of the page, never markup, and what is not printable in it is escaped.
//
// A deliverer's API is at `v1/` beside its page. The operator serves the same page for all deliverers:
// `v1/cluster` has the rows, and below `v1/deliverers/NAMESPACE/POD/` is the API of each one.
"use strict";

const IS_CLUSTER = document.documentElement.dataset.of === "cluster";
const REFRESH_MS = 2000;
const CLUSTER_MS = 5000;
const ANSWER_MS = 10_000;
const ACTION_MS = 120_000;
const PAGE = 500;
// Of destinations in the table, and of outcomes in a list.
const MOST_ROWS = 1000;
const LISTED = 50;
const MOST_FOUND = 500;
// Of one refresh; the rest comes with the next.
const MOST_PAGES = 20;
const REDRIVEN_AT_ONCE = 10_000;
// Seconds, as in `pillion queues`.
const UNANSWERED = 5;
const BEHIND = 10;
const LATELY = 600;
// The worst first.
const STATES = [
  "failing", "held", "paused", "unreachable", "unanswered", "suspended", "slow", "behind", "limited", "draining",
  "ok",
];
const TROUBLE = new Set(STATES.slice(0, 8));

const $ = (id) => document.getElementById(id);

// ------------------------------------------------------------------ words and numbers

function shown(text) {
  const hex = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return String(text ?? "").replace(/[\p{C}\p{Z}]/gu, (letter) =>
    letter === " " ? letter : letter.split("").map(hex).join(""));
}

const joined = (separator, ...parts) => parts.filter(Boolean).join(separator);

function brief(seconds) {
  const left = Math.trunc(Math.min(Math.max(seconds, 0), 9999 * 86400));
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (left >= 2 * size) return `${Math.trunc(left / size)} ${unit}`;
  }
  return `${left} s`;
}

// As `pillion queues` writes the time in a setting.
function duration(seconds) {
  const left = Math.trunc(Math.min(seconds, 9999 * 86400));
  for (const [unit, size, below, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    const rest = Math.trunc((left % size) / part);
    if (left >= size) return joined(" ", `${Math.trunc(left / size)} ${unit}`, rest && `${rest} ${below}`);
  }
  return `${left} s`;
}

const whole = (number) => number.toLocaleString("en");

function number(count) {
  if (count < 10_000) return whole(count);
  const [letter, size] = [["G", 1e9], ["M", 1e6], ["K", 1e3]].find((one) => count >= one[1]);
  const tenths = Math.trunc((count * 10) / size);
  return `${tenths < 1000 ? tenths / 10 : Math.trunc(tenths / 10)} ${letter}`;
}

const rate = (perSecond) => perSecond < 10 ? String(Math.round(perSecond * 10) / 10)
  : number(Math.trunc(perSecond));

const milliseconds = (seconds) => seconds < 10
  ? `${whole(Math.round(seconds * 1e4) / 10)} ms` : `${whole(Math.round(seconds * 10) / 10)} s`;

const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

// ------------------------------------------------------------------ time, by the deliverer's clock

let ahead = 0;

function setClock(header) {
  // The header has whole seconds.
  const found = Date.parse(header) + 500 - Date.now();
  if (Math.abs(found - ahead) > 1500) ahead = found;
}

const now = () => (Date.now() + ahead) / 1000;
const secondsOf = (time) => Date.parse(time) / 1000;
const since = (time, at) => time ? Math.max(0, at - secondsOf(time)) : null;
const until = (time, at) => time ? Math.max(0, secondsOf(time) - at) : null;
const inTime = (seconds) => seconds === null ? "" : seconds >= 1 ? `in ${brief(seconds)}` : "now";

function clockTime(time) {
  const text = new Date(time).toISOString();
  const isToday = text.slice(0, 10) === new Date(now() * 1000).toISOString().slice(0, 10);
  return isToday ? text.slice(11, 23) : text.slice(0, 19).replace("T", " ");
}

// ------------------------------------------------------------------ the API

class Away extends Error {}
class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

// Of the cluster's page; it stays in memory alone.
let token = "";
const lacksToken = () => IS_CLUSTER && !token;

async function ask(path, query = {}, { method = "GET", patience = ANSWER_MS } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const parameters = given.length ? `?${new URLSearchParams(given)}` : "";
  const signal = AbortSignal.timeout(patience);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  let answer, text;
  try {
    answer = await fetch(path + parameters, options);
    text = await answer.text();
  } catch {
    throw new Away();
  }
  setClock(answer.headers.get("Date"));
  const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
  const document = isJson ? parsed(text) : undefined;
  if (!answer.ok) throw new Refused(answer.status, document?.reason ?? `HTTP ${answer.status}`);
  return { headers: answer.headers, text, document };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(502, "The answer is not JSON.");
  }
}

// `base` is where the API of the deliverer is.
const queuePath = ({ base, name }, action = "") => `${base}v1/queues/${encodeURIComponent(name)}${action}`;

async function outcomes(base, query) {
  const { headers, text } = await ask(`${base}v1/outcomes`, query);
  return {
    found: text.split("\n").filter(Boolean).map(parsed),
    history: headers.get("Pillion-History"),
    after: Number(headers.get("Pillion-Next-After")),
    more: headers.get("Pillion-More") === "true",
  };
}

// ------------------------------------------------------------------ what is wrong with a queue

const resultOf = (last) => last
  ? joined(": ", last.cause ?? (last.result === "error" ? "" : last.result), last.detail) || last.result
  : "its attempts fail; the next one shows the cause";

const ratesOf = (queue) => queue.acceptedPerSecond == null || queue.deliveredPerSecond == null ? ""
  : `${rate(queue.acceptedPerSecond)} a second arrive, ${rate(queue.deliveredPerSecond)} are delivered`;

// Returns the state, why, and since when.
function stateOf(queue, unanswered, age) {
  if (queue.unreachable) {
    return ["unreachable", `its deliverer does not answer: ${queue.unreachable.reason}`, queue.unreachable.since];
  }
  if (queue.suspended) return ["suspended", "its resource has suspended: true", null];
  for (const [state, hold] of [["held", queue.hold], ["paused", queue.pause]]) {
    if (hold) return [state, joined(": ", hold.cause, hold.message), hold.since];
  }
  if (queue.failingSince) return ["failing", resultOf(queue.lastResult), queue.failingSince];
  const limit = queue.rateLimit?.limiting ? `rate limit of ${queue.rateLimit.perSecond} a second` : "";
  if (queue.slowSince) return ["slow", joined("; ", limit, ratesOf(queue)), queue.slowSince];
  if (unanswered >= UNANSWERED) return ["unanswered", "", queue.lastAttemptTime];
  if (limit) return ["limited", limit, null];
  if (queue.depth && (age ?? 0) >= BEHIND) {
    return ["behind", ratesOf(queue), null];
  }
  if (queue.draining) return ["draining", "its destination is no longer configured", null];
  return ["ok", "", null];
}

function nextOf(queue, at) {
  if (queue.suspended || queue.hold || queue.unreachable) return "";
  return queue.inFlight ? "under way" : inTime(until(queue.nextAttemptTime, at));
}

const total = (counts) => Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);

function judge(queue, at) {
  // The cluster's rows are as old as the operator's last look: what waited then may have left.
  const reported = queue.reportedTime ? secondsOf(queue.reportedTime) : at;
  const unanswered = queue.inFlight ? since(queue.lastAttemptTime, reported) ?? 0 : 0;
  const [state, why, began] = stateOf(queue, unanswered,
    queue.oldestIndicationAgeSeconds ?? since(queue.oldestIndicationTime, reported));
  const last = since(queue.lastDiscardTime, at);
  const lost = last !== null && last < LATELY
    ? `${whole(total(queue.discarded))} discarded, the last ${brief(last)} ago` : "";
  const loss = until(queue.firstLossDueTime, at);
  const losesNow = Boolean(lost) && loss !== null && loss < 1 && !queue.unreachable;
  // One that works, or that gets nothing more, is full for a moment.
  const refuses = queue.depth >= queue.capacity && (loss === null || loss >= 1)
    && !["ok", "draining", "unreachable"].includes(state);
  const also = joined("; ",
    unanswered >= UNANSWERED && `no answer for ${brief(unanswered)}`,
    state === "failing" && !queue.depth && "nothing waits, so nothing is tried",
    queue.relayTo && `relay to ${queue.relayTo}`,
    queue.held && `${whole(queue.held)} held by message groups`);
  return {
    queue, state, why: joined("; ", refuses && "full; publishers are refused", shown(why)), also: shown(also), lost,
    losesNow, refuses, trouble: TROUBLE.has(state) || losesNow || refuses,
    since: since(began, at), next: nextOf(queue, at), loss,
  };
}

const bySoonest = ({ loss }, { loss: other }) => {
  const [first, second] = [loss, other].map((one) => one === null ? Infinity : one < 1 ? 0 : one);
  return first === second ? 0 : first - second;
};

// Of those in trouble first what loses indications now, then what refuses publishers, then by the first loss. The
// order is that of `pillion queues`.
const byTrouble = (one, other) => other.trouble - one.trouble
  || (one.trouble && (other.losesNow - one.losesNow || other.refuses - one.refuses || bySoonest(one, other)))
  || STATES.indexOf(one.state) - STATES.indexOf(other.state)
  || other.queue.depth - one.queue.depth || (one.queue.name < other.queue.name ? -1 : 1);

const VERBS = {
  failing: "fails", held: "is held", paused: "is paused", unanswered: "does not answer",
  unreachable: "is unknown", suspended: "is suspended", slow: "is slow", behind: "is behind",
  limited: "is limited",
};

// A deliverer that never answered has a row without a destination.
const fullName = ({ name, namespace, pod }) => joined(" at ", shown(name),
  namespace && `${shown(namespace)}/${shown(pod)}`);

const toneOf = ({ state, losesNow, refuses }) => losesNow || refuses ? "failing" : state;

// Older deliverers do not give the reason.
const firstLoss = ({ queue, loss, losesNow }, where = "") => {
  const when = losesNow && !where ? "Loses indications now" : `First loss ${inTime(loss)}${where}`;
  return `${joined(": ", when, shown(queue.firstLossReason))}.`;
};

// One sentence, without a time that changes: it is read aloud when it changes.
function headline(judged) {
  if (!judged.length) return "No destinations are configured.";
  const bad = judged.filter((one) => one.trouble).length;
  if (!bad) {
    return judged.length === 1 ? "The destination has no trouble."
      : `All ${whole(judged.length)} destinations are without trouble.`;
  }
  const { queue, state, why, losesNow } = judged[0];
  const what = joined(" and ", VERBS[state], losesNow && "loses indications now");
  const more = bad === 1 ? `It is the only one of ${plural(judged.length, "destination")} in trouble.`
    : `${whole(bad)} of ${plural(judged.length, "destination")} have trouble.`;
  return `${joined(": ", `${fullName(queue)} ${what}`, why)}. ${judged.length > 1 ? more : ""}`.trim();
}

// ------------------------------------------------------------------ the page

// Nothing is changed that stays the same: a selection, the focus and a reader's place survive.
function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const placeOf = ({ namespace, pod }) => namespace
  ? `at/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}/` : "";
const hrefTo = (kind, name, place) => `#/${placeOf(place)}${kind}/${encodeURIComponent(name)}`;
const linkTo = (kind, name, place = view) => make("a", { href: hrefTo(kind, name, place) }, shown(name));

function button(text, label, act) {
  const made = make("button", { type: "button", "aria-label": `${text} ${label}` }, text);
  made.addEventListener("click", act);
  return made;
}

const meter = (label) => make("meter", { "aria-label": label, min: "0", value: "0" });

class Rows {
  // `build` makes a row's cells from an item: nodes, or null for a text. `fill` returns the texts.
  constructor(id, build, fill) {
    this.table = $(id);
    this.headings = [...this.table.querySelectorAll("th")].map((one) => one.textContent);
    this.rows = new Map();
    this.build = build;
    this.fill = fill;
  }

  show(items, keyOf) {
    const wanted = new Map(items.map((item) => [keyOf(item), item]));
    for (const [key, one] of this.rows) {
      if (!wanted.has(key)) {
        one.row.remove();
        this.rows.delete(key);
      }
    }
    const body = this.table.tBodies[0], isHeld = this.isInUse(body);
    let next = body.firstElementChild;
    for (const [key, item] of wanted) {
      const known = this.rows.get(key), one = known ?? this.made(key, item);
      this.fill(one, item).forEach((text, index) => text === null || tell(one.cells[index], text));
      if (one.row === next) next = next.nextElementSibling;
      else if (known && body.moveBefore) isHeld || body.moveBefore(one.row, next);
      else if (!known || !isHeld) body.insertBefore(one.row, next);
    }
    this.table.hidden = !wanted.size;
  }

  // Moving a row would take the selection from it; and the focus, unless the browser can keep it.
  isInUse(body) {
    const selection = getSelection();
    return (!body.moveBefore && body.contains(document.activeElement))
      || (!selection.isCollapsed && selection.containsNode(body, true));
  }

  made(key, item) {
    const row = make("tr", { role: "row" });
    const cells = this.build(item).map((content, index) => {
      const isHead = index === 0 && this.table.id === "queues";
      const role = isHead ? { role: "rowheader", scope: "row" } : { role: "cell" };
      const cell = make(isHead ? "th" : "td", { ...role, "data-label": this.headings[index] });
      row.append(cell);
      if (content === null) return cell;
      cell.append(...[content].flat());
      return cell.querySelector("[data-text]") ?? cell;
    });
    const one = { row, cells };
    this.rows.set(key, one);
    return one;
  }

  clear() {
    this.show([], String);
  }
}

const text = () => make("span", { "data-text": "" });

// ------------------------------------------------------------------ the overview

function nameCell(queue) {
  if (!IS_CLUSTER || view.namespace) return [linkTo("destination", queue.name)];
  const pod = make("a", { href: `#/${placeOf(queue)}` }, shown(queue.pod));
  const place = make("span", { class: "place" }, `${shown(queue.namespace)} / `, pod);
  return queue.name ? [linkTo("destination", queue.name, queue), place] : [place];
}

const overview = new Rows("queues",
  ({ queue }) => [
    nameCell(queue), [make("span", { class: "state", "data-text": "" })],
    null, null, [meter("depth"), text()], null, null, null, null,
  ],
  (one, { queue, state, why, also, lost, since: seconds, next, loss }) => {
    set(one.row, "data-state", state);
    const bar = one.row.querySelector("meter");
    set(bar, "max", String(queue.capacity));
    set(bar, "high", String(queue.capacity * 0.8));
    set(bar, "optimum", "0");
    set(bar, "value", String(Math.min(queue.depth, queue.capacity)));
    return [
      null, state, joined("; ", lost, why, also), seconds === null ? "" : brief(seconds),
      `${number(queue.depth)} / ${number(queue.capacity)}`,
      queue.acceptedPerSecond == null ? "" : rate(queue.acceptedPerSecond),
      queue.deliveredPerSecond == null ? "" : rate(queue.deliveredPerSecond),
      next, inTime(loss),
    ];
  });
// By uid: a queue that drains stands beside a new one of its name.
const keyOfQueue = ({ queue }) =>
  `${placeOf(queue)} ${queue.name} ${queue.uid} ${queue.draining}`;

async function loadCluster() {
  const { document } = await ask("v1/cluster");
  return { first: document, queues: document.queues };
}

async function loadOverview({ base }) {
  const pages = [];
  for (let after; pages.length < MOST_PAGES && after !== null;) {
    const { document } = await ask(`${base}v1/queues`, { limit: PAGE, after });
    pages.push(document);
    after = document.next;
  }
  return { first: pages[0], queues: pages.flatMap((page) => page.queues) };
}

function notesOf({ revision, keptFilters, endedSubscriptions, replays, count, queues }) {
  return [
    count > queues?.length && `${whole(count)} rows in all. The worst ${whole(queues.length)} are here.`,
    revision === null && "No configuration is in force yet.",
    ...(keptFilters ?? []).map(({ name, problem }) =>
      `Filter ${name}: its edit is wrong, and the last good version stays in force: ${problem}`),
    ...(endedSubscriptions ?? []).slice(0, LISTED).map(({ name, state, reason }) =>
      `Subscription ${name} has ended: ${joined(", ", state, reason)}`),
    ...(replays ?? []).filter(({ state }) => state !== "Complete").map(({ name, state, replayed, detail }) =>
      `Replay ${name}: ${joined(", ", state, `${whole(replayed)} replayed`, detail)}`),
  ].filter(Boolean).map(shown);
}

function paintOverview({ first, queues }) {
  const at = now(), judged = queues.map((queue) => judge(queue, at)).sort(byTrouble);
  const bad = judged.filter((one) => one.trouble).length;
  tell($("banner"), headline(judged));
  set($("banner"), "data-state", judged.length ? toneOf(judged[0]) : "ok");
  document.title = bad ? `${bad} in trouble – Pillion` : "Pillion";
  const [soonest] = judged.filter((one) => one.loss !== null)
    .sort((one, other) => other.losesNow - one.losesNow || bySoonest(one, other));
  // The banner tells it of the worst one.
  const refusing = judged.slice(1).find((one) => one.refuses);
  tell($("loss"), joined(" ", soonest && firstLoss(soonest, `, at ${fullName(soonest.queue)}`),
    refusing && `Publishers are refused, since the queue of ${fullName(refusing.queue)} is full.`));
  $("queues").classList.toggle("no-rates", queues.every((queue) => queue.acceptedPerSecond == null));
  paintList($("notes"), notesOf(first));
  if (isAll()) paintNamespaces(queues);
  const chosen = isAll() ? $("namespace").value : "";
  tell($("deliverer"), joined(", ", location.host, view.namespace && `${shown(view.namespace)}/${shown(view.pod)}`,
    isAll() && plural(first.deliverers, "deliverer"), first.durability && `durability ${first.durability}`,
    first.revision && `revision ${shown(first.revision)}`));
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = judged.filter((one) => (one.trouble || !$("troubled").checked)
    && (!chosen || one.queue.namespace === chosen)
    && words.every((word) => `${fullName(one.queue)} ${one.queue.service ?? ""} ${one.state} ${one.why} ${one.also} ${one.lost}`.toLowerCase().includes(word)));
  overview.show(matching.slice(0, MOST_ROWS), keyOfQueue);
  tell($("count"), matching.length > MOST_ROWS ? `the worst ${whole(MOST_ROWS)} of ${whole(matching.length)}`
    : matching.length < judged.length ? `${whole(matching.length)} of ${whole(judged.length)}` : "");
}

const isAll = () => view.kind === "cluster";

function paintNamespaces(queues) {
  const select = $("namespace"), chosen = select.value;
  const names = [...new Set(queues.map((one) => one.namespace))].sort();
  if (names.join() === [...select.options].slice(1).map((one) => one.value).join()) return;
  select.replaceChildren(make("option", { value: "" }, "all"), ...names.map((one) => make("option", { value: one }, shown(one))));
  if (names.includes(chosen)) select.value = chosen;
}

function paintList(list, texts) {
  while (list.children.length > texts.length) list.lastElementChild.remove();
  while (list.children.length < texts.length) list.append(make("li", {}));
  texts.forEach((one, index) => tell(list.children[index], one));
  list.hidden = !texts.length;
}

// ------------------------------------------------------------------ outcomes

const identifierOf = ({ identifier }) => identifier ? linkTo("search", identifier) : "";
const whyOf = ({ reason, cause, detail }) => shown(joined(": ", reason, joined(": ", cause, detail)));
const numberOf = (one) => one.number;

function outcomeButtons(outcome) {
  const label = `${shown(outcome.identifier) || `number ${outcome.number}`} at ${shown(outcome.destination)}`;
  const { base } = view;
  const show = button("Show", label, () => showBody(base, outcome));
  if (outcome.result !== "discarded") return [make("span", { class: "buttons" }, show)];
  return [make("span", { class: "buttons" }, show, button("Redrive", label, () => redriveOne(base, outcome)))];
}

const attempts = new Rows("attempts",
  (one) => [null, identifierOf(one), null, [meter("duration"), text()], null],
  (row, { time, attempt, seconds, result, detail, slowest }) => {
    set(row.row, "data-state", result === "success" ? "ok" : "failing");
    const bar = row.row.querySelector("meter");
    set(bar, "max", String(slowest || 1));
    set(bar, "value", String(seconds));
    return [clockTime(time), null, String(attempt), milliseconds(seconds), shown(joined(": ", result, detail))];
  });
const discards = new Rows("discards",
  (one) => [null, identifierOf(one), null, null, outcomeButtons(one)],
  (row, one) => {
    row.row.querySelector("button:last-of-type").hidden = one.isRedriven;
    return [clockTime(one.time), null, shown(one.source), joined("; ", whyOf(one), one.isRedriven && "redriven"), null];
  });
const latest = new Rows("outcomes",
  (one) => [null, identifierOf(one), null, null, null],
  (row, one) => {
    set(row.row, "data-state", one.result === "discarded" ? "failing" : "ok");
    return [clockTime(one.time), null, shown(one.source), joined(": ", one.result, whyOf(one)),
      String(one.attempts ?? 0)];
  });
const way = new Rows("way",
  (one) => [null, linkTo("destination", one.destination), null, null, null, null, outcomeButtons(one)],
  (row, one) => {
    set(row.row, "data-state", one.result === "discarded" && !one.isRedriven ? "failing" : "ok");
    if (one.result === "discarded") row.row.querySelector("button:last-of-type").hidden = one.isRedriven;
    return [clockTime(one.time), null,
      joined("; ", joined(": ", one.result, whyOf(one)), one.redrives && `again, number ${one.redrives}`,
        one.deadLetter && `dead letter of ${shown(one.deadLetter)}`),
      shown(one.source), clockTime(one.acceptedTime), String(one.attempts ?? 0), null];
  });
const waits = new Rows("waits",
  (one) => [linkTo("destination", one.destination), null, null, null, null],
  (row, one) => {
    const place = one.inFlight ? "under way" : one.ahead ? `${whole(one.ahead)} before it` : "the first";
    return [null, joined("; ", place, one.group && `group ${shown(one.group)}`), shown(one.source),
      clockTime(one.acceptedTime), String(one.attempts ?? 0)];
  });

// The outcomes of one selection, by number.
class Trail {
  constructor(base, query) {
    this.base = base;
    this.query = query;
    this.begin();
  }

  begin() {
    this.history = null;
    this.after = 0;
    this.more = false;
    this.found = new Map();
    this.discarded = new Map();
    this.redriven = new Set();
  }

  async ask(query) {
    const page = await outcomes(this.base, { ...this.query, after: this.after, ...query });
    if (this.history !== null && this.history !== page.history) throw new Refused(409, "another history");
    this.history = page.history;
    return page;
  }

  take(page) {
    for (const one of page.found) {
      this.found.set(one.number, one);
      if (one.result === "discarded") this.discarded.set(one.number, one);
      if (one.result === "redriven") this.redriven.add(one.redrives);
    }
  }

  // The last ones of every kind, since the last time.
  async loadLatest() {
    const page = await this.ask({ latest: true, limit: LISTED });
    if (page.found.length >= LISTED) {
      this.take(await this.ask({ latest: true, limit: LISTED, result: "discarded" }));
      this.take(await this.ask({ latest: true, limit: PAGE, result: "redriven" }));
    }
    this.take(page);
    this.after = page.after;
    this.found = latestOf(this.found);
    this.discarded = latestOf(this.discarded);
  }

  // All, from the first one on.
  async loadNext() {
    this.more = true;
    for (let pages = 0; this.more && pages < MOST_PAGES && this.found.size < MOST_FOUND; pages++) {
      const page = await this.ask({ limit: PAGE });
      this.take(page);
      this.after = page.after;
      this.more = page.more;
    }
  }

  async refresh(load) {
    try {
      await load.call(this);
    } catch (error) {
      if (error.status !== 409) throw error;
      this.begin();
    }
  }
}

function latestOf(found) {
  return new Map([...found].sort(([one], [other]) => one - other).slice(-LISTED));
}

const newestFirst = (found) => [...found.values()].reverse();

// ------------------------------------------------------------------ one destination

async function loadDestination(view) {
  view.trail ??= new Trail(view.base, { destination: view.name });
  const [{ document }] = await Promise.all([ask(queuePath(view)), view.trail.refresh(view.trail.loadLatest)]);
  return { queue: document, trail: view.trail };
}

function retryOf(retry) {
  if (!retry) return "";
  const times = retry.attempts === null ? "no limit of retries" : `${retry.attempts} retries`;
  const most = retry.backoff === "Exponential" && `doubling to ${duration(retry.maximumIntervalSeconds)}`;
  return joined(", ", times, `${duration(retry.intervalSeconds)} apart`, most);
}

function factsOf({ queue, since: seconds, next, also }, at) {
  const oldest = since(queue.oldestIndicationTime, at);
  const reasons = Object.entries(queue.discarded).map(([reason, count]) => `${whole(count)} ${reason}`);
  return {
    Since: seconds === null ? "" : brief(seconds),
    "Next try": next,
    Full: inTime(until(queue.fullTime, at)),
    Depth: `${whole(queue.depth)} of ${whole(queue.capacity)}`,
    Oldest: oldest === null ? "" : brief(oldest),
    First: shown((queue.frontIdentifiers ?? []).join(", ")),
    "Under way": queue.inFlight ? whole(queue.inFlight) : "",
    Rates: ratesOf(queue),
    Delivered: whole(queue.delivered),
    Discarded: reasons.join(", "),
    Also: also,
    Protocol: shown(queue.protocol),
    Retry: retryOf(queue.retry),
    Lifetime: queue.indicationLifetimeSeconds ? duration(queue.indicationLifetimeSeconds) : "no limit",
    "Rate limit": queue.rateLimit ? `${queue.rateLimit.perSecond} a second, bursts of ${whole(queue.rateLimit.burst)}` : "",
  };
}

function paintFacts(facts) {
  const list = $("facts");
  for (const [label, value] of Object.entries(facts)) {
    const pair = [...list.children].find((one) => one.firstChild.textContent === label)
      ?? list.appendChild(make("div", {}, make("dt", {}, label), make("dd", {})));
    tell(pair.lastChild, value);
    pair.hidden = !value;
  }
}

function paintDestination({ queue, trail }) {
  $("actions").hidden = false;
  const at = now(), judged = judge(queue, at);
  tell($("name"), shown(queue.name));
  tell($("state"), judged.trouble ? headline([judged])
    : joined(": ", `${judged.state === "ok" ? "No trouble" : judged.state}`, judged.why) + ".");
  set($("state"), "data-state", toneOf(judged));
  const { loss, lost } = judged;
  tell($("lost"), joined(" ", loss !== null && firstLoss(judged), lost && `${lost}.`));
  document.title = `${shown(queue.name)} ${judged.state} – Pillion`;
  paintFacts(factsOf(judged, at));
  const slowest = Math.max(...queue.attempts.map(({ seconds }) => seconds));
  attempts.show(queue.attempts.map((one) => ({ ...one, slowest })),
    (one) => `${one.time} ${one.sequenceNumber} ${one.attempt} ${one.identifier}`);
  discards.show(newestFirst(trail.discarded).map((one) => ({ ...one, isRedriven: trail.redriven.has(one.number) })), numberOf);
  latest.show(newestFirst(trail.found), numberOf);
}

// ------------------------------------------------------------------ one identifier

async function loadFound(view) {
  view.trail ??= new Trail(view.base, { identifier: view.name });
  // First what waits: what is settled meanwhile is among the outcomes then.
  await loadPending(view);
  await view.trail.refresh(view.trail.loadNext);
  return view;
}

async function loadPending(view) {
  // Deliverers do not tell the operator what waits.
  if (IS_CLUSTER) return;
  try {
    view.waiting = (await ask(`${view.base}v1/pending`, { identifier: view.name })).document;
  } catch (error) {
    // Others search already: what was found stays.
    if (!(error instanceof Refused)) throw error;
  }
}

function waitingOf({ pending, unread } = { pending: [], unread: 0 }) {
  return joined(" ", pending.length && `Waits at ${plural(pending.length, "place")}.`,
    unread && `${whole(unread)} of those that wait were not looked at.`);
}

function paintFound({ trail, waiting }) {
  const found = [...trail.found.values()].map((one) => ({ ...one, isRedriven: trail.redriven.has(one.number) }));
  const { more } = trail, name = shown(trail.query.identifier);
  const count = (result) => found.filter((one) => one.result === result).length;
  const results = ["delivered", "discarded", "relayed", "handed-over", "redriven"]
    .filter(count).map((result) => `${whole(count(result))} ${result}`);
  const isMissed = found.some((one) => one.result === "discarded" && !one.isRedriven);
  tell($("sought"), name);
  const settled = found.length ? `${plural(found.length, "outcome")}${more ? ", and more" : ""}: ${results.join(", ")}.`
    : waiting?.pending.length ? "No outcome yet."
      : !waiting ? "No outcome has this identifier. The indication may still wait in a queue, or has left the history."
        : "No outcome has this identifier, and nothing that waits. The indication may have left the history.";
  tell($("summary"), joined(" ", waitingOf(waiting), settled));
  set($("summary"), "data-state", isMissed ? "failing" : "ok");
  document.title = `${name} – Pillion`;
  waits.show(waiting?.pending ?? [], (one) => `${one.destination} ${one.subscription} ${one.source} ${one.acceptedTime}`);
  way.show(found, numberOf);
}

// ------------------------------------------------------------------ actions

function confirmed(question, consequence, yes) {
  const dialog = $("ask");
  tell($("question"), question);
  tell($("consequence"), consequence);
  tell($("yes"), yes);
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
    dialog.showModal();
    $("no").focus();
  });
}

function say(message) {
  const place = $("done");
  place.hidden = !message;
  // The same message is read aloud again.
  place.textContent = "";
  place.textContent = message;
}

async function acting(act) {
  say("");
  try {
    const message = await act();
    if (message) say(message);
  } catch (error) {
    if (error instanceof Away) say("The deliverer does not answer. Whether this was done is not known.");
    else if (error instanceof Refused) say(`Not done: ${shown(error.message)}`);
    else throw error;
  }
  wake();
}

const post = async (path, query) => (await ask(path, query, { method: "POST", patience: ACTION_MS })).document;
const named = (identifiers) => identifiers.map((one) => one === null ? "without an identifier" : shown(one)).join(", ");

const ACTIONS = {
  async retry(of) {
    const { name } = of;
    if (!await confirmed(`Retry ${shown(name)} now?`,
      "The next attempt is made now. If it fails, the limit of retries does not count it.", "Retry now")) return "";
    const { retried } = await post(queuePath(of, "/retry"));
    return `${shown(name)}: ${retried ? "the next attempt is made now." : "no indication waits for a retry."}`;
  },

  async skip(of) {
    const { name } = of;
    const { document } = await ask(queuePath(of));
    const first = document.frontIdentifiers ?? [];
    if (!document.depth) return `${shown(name)}: nothing waits.`;
    if (!await confirmed(`Discard the first indication of ${shown(name)}?`,
      `${first.length ? `Now this is ${named(first)}. ` : ""}It is discarded as purged. Redrive delivers it again while the history keeps it.`,
      "Discard it")) return "";
    const { discarded, identifiers } = await post(queuePath(of, "/skip"));
    return discarded ? `${shown(name)}: discarded ${named(identifiers)}.` : `${shown(name)}: nothing was left to discard.`;
  },

  async purge(of) {
    const { name } = of;
    const { document } = await ask(queuePath(of));
    if (!document.depth) return `${shown(name)}: nothing waits.`;
    if (!await confirmed(`Discard all that waits at ${shown(name)}?`,
      `Now this is ${plural(document.depth, "indication")}. Redrive delivers them again while the history keeps them.`,
      "Discard all")) return "";
    const { discarded } = await post(queuePath(of, "/purge"));
    return `${shown(name)}: ${plural(discarded, "indication")} discarded.`;
  },

  async redrive({ base, name }) {
    const plan = await redriven(base, { destination: name, dryRun: true });
    const skipped = skippedOf(plan.skipped);
    if (!plan.redriven) return `${shown(name)}: nothing can be redriven${skipped && ` (${skipped})`}.`;
    const newer = plan.newer ? ` ${whole(plan.newer)} of them will arrive after newer indications of the same source.` : "";
    if (!await confirmed(`Redrive ${plural(plan.redriven, "discarded indication")} of ${shown(name)}?`,
      `They are queued again behind what waits.${newer}${skipped && ` Left out: ${skipped}.`}`, "Redrive")) return "";
    return redriveResult(name, await redriven(base, { destination: name, through: plan.through }));
  },
};

const LEFT_OUT = {
  redriven: "redriven already", "not-kept": "without content in the history",
  "not-subscribed": "not subscribed any more",
};
const skippedOf = (skipped) => Object.entries(skipped)
  .map(([reason, count]) => `${whole(count)} ${LEFT_OUT[reason] ?? shown(reason)}`).join(", ");

function redriveResult(name, { redriven: count, skipped, refusal }) {
  const rest = skippedOf(skipped);
  return `${shown(name)}: ${whole(count)} redriven${rest && `; left out: ${rest}`}`
    + (refusal ? `; stopped: ${shown(refusal)}. Redrive again later.` : ".");
}

// Redrives, or counts, in parts; stops at the first refusal.
async function redriven(base, query) {
  const sum = { redriven: 0, newer: 0, skipped: {}, refusal: null, through: query.through };
  for (let after = query.after ?? 0, more = true; more && !sum.refusal;) {
    const part = await post(`${base}v1/outcomes/redrive`,
      { limit: REDRIVEN_AT_ONCE, ...query, after, through: sum.through });
    sum.through ??= part.through;
    sum.redriven += part.redriven;
    sum.newer += part.newer;
    for (const [reason, count] of Object.entries(part.skipped)) sum.skipped[reason] = (sum.skipped[reason] ?? 0) + count;
    sum.refusal = part.refusal ?? null;
    more = part.more && part.next > after;
    after = part.next;
  }
  return sum;
}

function redriveOne(base, { number, destination, identifier }) {
  return acting(async () => {
    if (!await confirmed(`Redrive ${shown(identifier) || `number ${number}`} to ${shown(destination)}?`,
      "It is queued again behind what waits.", "Redrive")) return "";
    return redriveResult(destination, await redriven(base, { destination, after: number - 1, through: number }));
  });
}

function showBody(base, { number, destination, identifier }) {
  return acting(async () => {
    const { found } = await outcomes(base, { destination, after: number - 1, limit: 1, indication: true });
    const indication = found[0]?.number === number ? found[0].indication : undefined;
    const lines = indication === undefined ? ["The history does not keep its content."]
      : JSON.stringify(indication, null, 2).split("\n").map(shown);
    const dialog = $("body");
    tell($("of"), shown(identifier) || `Number ${number}`);
    tell(dialog.querySelector("pre"), lines.join("\n"));
    dialog.showModal();
    return "";
  });
}

// ------------------------------------------------------------------ the views

const VIEWS = {
  cluster: { section: "overview", load: loadCluster, paint: paintOverview },
  overview: { section: "overview", load: loadOverview, paint: paintOverview },
  destination: { section: "destination", load: loadDestination, paint: paintDestination, heading: "name" },
  search: { section: "found", load: loadFound, paint: paintFound, heading: "sought" },
};
let view = { kind: IS_CLUSTER ? "cluster" : "overview", name: "", base: "" };

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function viewOf(hash) {
  const at = IS_CLUSTER ? /^#\/at\/([^/]+)\/([^/]+)\/(.*)$/s.exec(hash) : null;
  const [namespace, pod] = at ? [decoded(at[1]), decoded(at[2])] : ["", ""];
  const base = at ? `v1/deliverers/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}/` : "";
  const rest = at ? `#/${at[3]}` : hash;
  if (rest === "" || rest === "#/") {
    return { kind: IS_CLUSTER && !at ? "cluster" : "overview", name: "", base, namespace, pod };
  }
  const [, kind, name] = /^#\/(destination|search)\/(.+)$/s.exec(rest) ?? [];
  // Without a deliverer the cluster has nothing but its overview.
  if (!kind || (IS_CLUSTER && !at)) return null;
  return { kind, name: decoded(name), base, namespace, pod };
}

function route(event) {
  const next = viewOf(location.hash);
  // Another fragment is a place in this view.
  if (!next) return;
  view.scrolled = scrollY;
  const before = view;
  view = next;
  for (const rows of [attempts, discards, latest, waits, way]) rows.clear();
  // Another place has other rows of the same names.
  if (before.base !== view.base) overview.clear();
  for (const id of ["ask", "body"]) $(id).close("");
  say("");
  paintPlace();
  const { section, heading } = VIEWS[view.kind];
  for (const one of Object.values(VIEWS)) $(one.section).hidden = true;
  if (heading) {
    tell($(heading), shown(view.name));
    for (const id of ["state", "summary"]) tell($(id), "Loading");
    tell($("lost"), "");
    $("facts").replaceChildren();
    $(section).hidden = lacksToken();
  }
  if (view.kind === "search") $("identifier").value = view.name;
  if (event) {
    $(lacksToken() ? "token" : "main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  if (VIEWS[view.kind].section === "overview" && dataOf(view)) {
    paint();
    if (before.kind !== view.kind) returnTo(before);
  }
  wake();
}

// Back in the overview, at the row that was left.
function returnTo({ kind, name, namespace, pod }) {
  const href = kind === "destination" ? hrefTo(kind, name, { namespace, pod }) : `#/${placeOf({ namespace, pod })}`;
  const link = document.querySelector(`#queues a[href="${CSS.escape(href)}"]`);
  if (link) link.focus();
}

function paintPlace() {
  const isOne = IS_CLUSTER && !isAll();
  for (const one of document.querySelectorAll(".whole")) {
    one.hidden = !isOne || view.kind === "overview";
    if (isOne) {
      set(one, "href", `#/${placeOf(view)}`);
      tell(one, `Destinations of ${shown(view.namespace)}/${shown(view.pod)}`);
    }
  }
  $("back").hidden = !isOne || view.kind !== "overview";
  $("search").hidden = isAll();
  $("namespaces").hidden = !isAll();
}

// The overview is kept while another view is shown.
function dataOf(one) {
  const { data } = VIEWS[one.kind];
  return one.data ?? (data?.base === one.base ? data : undefined);
}

function paint() {
  const { section, paint: painted } = VIEWS[view.kind], data = dataOf(view);
  if (lacksToken()) return;
  if (view.refusal) return showRefusal(view.refusal);
  if (!data) return;
  painted(data);
  $(section).hidden = false;
}

// ------------------------------------------------------------------ live

let wake = () => {};
let awaySince = null;
// Why there is no new answer, though somebody answers.
let busy = "";

function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function isSeen() {
  return document.hidden ? new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })) : null;
}

async function refresh() {
  const seen = view, used = token;
  busy = "";
  try {
    const data = await VIEWS[seen.kind].load(seen);
    awaySince = null;
    if (seen !== view || used !== token) return;
    seen.refusal = null;
    if (VIEWS[seen.kind].section === "overview") VIEWS[seen.kind].data = { ...data, base: seen.base };
    else seen.data = data;
    paint();
  } catch (error) {
    if (error instanceof Refused) {
      awaySince = null;
      if (error.status === 401 && IS_CLUSTER && used === token) forget(error.message);
      // It is busy: what is there stays.
      else if (error.status === 503) busy = shown(error.message);
      else if (seen === view) refuse(error);
    } else if (error instanceof Away) awaySince ??= now();
    // The operator does not vouch for what a pod answers.
    else if (IS_CLUSTER && error instanceof TypeError) seen === view && refuse(new Refused(502, "The answer cannot be read."));
    else throw error;
  } finally {
    document.body.classList.toggle("away", awaySince !== null);
    tell($("link"), awaySince === null ? busy || (lacksToken() ? "No token" : "Live")
      : `The ${IS_CLUSTER ? "operator" : "deliverer"} has not answered since ${clockTime(awaySince * 1000)}. Trying again.`);
  }
}

function refuse(error) {
  // Whoever may not read it any more, or looks for what is gone, sees nothing of it.
  if (error.status === 403 || error.status === 404) drop();
  view.refusal = error;
  paint();
}

// What the view showed would pass for new.
function showRefusal({ message, status }) {
  const place = { cluster: "banner", overview: "banner", destination: "state", search: "summary" }[view.kind];
  tell($(place), shown(message));
  set($(place), "data-state", "failing");
  // A destination that is not there has nothing to act on.
  $("actions").hidden = status === 403 || status === 404;
  $(VIEWS[view.kind].section).hidden = false;
}

// ------------------------------------------------------------------ the token of the cluster's page

// Nothing of what was read stays.
function drop() {
  for (const one of Object.values(VIEWS)) one.data = undefined;
  for (const rows of [overview, attempts, discards, latest, waits, way]) rows.clear();
  for (const id of ["ask", "body"]) $(id).close("");
  Object.assign(view, { data: undefined, trail: undefined, waiting: undefined, refusal: null });
  $("namespace").replaceChildren(make("option", { value: "" }, "all"));
}

function forget(reason) {
  token = "";
  // What is asked for now is of the token before.
  view = { ...view };
  drop();
  for (const one of Object.values(VIEWS)) $(one.section).hidden = true;
  tell($("refusal"), shown(reason));
  tell($("link"), "No token");
  $("signin").hidden = false;
  $("forget").hidden = true;
  $("token").focus();
}

function signIn(event) {
  event.preventDefault();
  token = $("token").value.replace(/\s/g, "");
  $("token").value = "";
  // A header has no other letters.
  if (!/^[\x21-\x7e]+$/.test(token)) return forget("This is no token: it has letters that no token has.");
  $("signin").hidden = true;
  $("forget").hidden = false;
  wake();
}

async function live() {
  for (;;) {
    await isSeen();
    if (lacksToken()) {
      await pause(CLUSTER_MS);
      continue;
    }
    const began = performance.now();
    await refresh();
    // A deliverer with very many destinations is not asked all the time.
    await pause(Math.max(isAll() ? CLUSTER_MS : REFRESH_MS, 10 * (performance.now() - began)));
  }
}

for (const one of document.querySelectorAll("#actions button")) {
  const act = ACTIONS[one.dataset.action];
  one.addEventListener("click", () => acting(() => act(view)));
}
$("yes").addEventListener("click", () => $("ask").close("yes"));
$("no").addEventListener("click", () => $("ask").close(""));
$("close").addEventListener("click", () => $("body").close());
$("filter").addEventListener("input", paint);
$("troubled").addEventListener("change", paint);
$("namespace").addEventListener("change", paint);
$("signin").addEventListener("submit", signIn);
$("forget").addEventListener("click", () => forget(""));
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = hrefTo("search", $("identifier").value.trim(), view);
});
tell($("deliverer"), location.host);
addEventListener("hashchange", route);
setInterval(() => document.hidden || awaySince !== null || paint(), 1000);
route();
if (IS_CLUSTER) forget("");
live();
