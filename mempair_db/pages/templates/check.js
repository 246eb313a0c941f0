"use strict";
// Checks a receipt in the browser, by its own data and a public key from elsewhere. Nothing is sent anywhere.
// The rules are those of mempair_db.ledger: signed notes, entries, Merkle proofs, tags.
(() => {
  class Wrong extends Error {}
  const encoder = new TextEncoder(), UNITS = 1e12;
  const WORDS = {
    "unlearned|": ["unlearned", "anchored memory pair"],
    "unlearned|exact": ["unlearned", "exact memory pair"],
    "unlearned|by exact retrain": ["retrained", "exact retraining"],
    "cancelled|cancelled": ["cancelled", "none needed"],
    "cancelled|never learned": ["never learned", "none needed"],
  };

  const join = (...parts) => {
    const whole = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    parts.reduce((at, p) => (whole.set(p, at), at + p.length), 0);
    return whole;
  };
  const same = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);
  const hex = bytes => Array.from(bytes, b => b.toString(16).padStart(2, "0")).join("");
  const fromHex = text => {
    if (!/^(?:[0-9a-f]{2})*$/.test(text)) throw new Wrong("Something that should be hexadecimal is not.");
    return Uint8Array.from(text.match(/../g) || [], pair => parseInt(pair, 16));
  };
  const fromBase64 = text => {
    try { return Uint8Array.from(atob(text), c => c.charCodeAt(0)); } catch { throw new Wrong("Something that should be base64 is not."); }
  };
  const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", join(...parts)));
  const hmac = async (salt, text) => {
    const key = await crypto.subtle.importKey("raw", salt, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    return new Uint8Array(await crypto.subtle.sign("HMAC", key, encoder.encode(text)));
  };

  // Keys sorted, no spaces: the bytes that were signed.
  const canonical = value => {
    if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
    if (value !== null && typeof value === "object")
      return `{${Object.keys(value).sort().map(k => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
    if (typeof value === "number" && !Number.isSafeInteger(value)) throw new Wrong("A number is too large for a browser: use `mempair receipt verify`.");
    return JSON.stringify(value);
  };

  async function readKey(text) {
    const [name, id, ...rest] = text.trim().split("+"), data = fromBase64(rest.join("+"));
    if (!name || rest.length === 0 || data.length !== 33 || data[0] !== 1) throw new Wrong("The public key does not have the form <name>+<id>+<base64>.");
    const digest = await sha256(encoder.encode(`${name}\n`), data);
    if (hex(digest.slice(0, 4)) !== id) throw new Wrong("The public key's id is not its own: copy the whole line again.");
    return { name, id, key: await crypto.subtle.importKey("raw", data.slice(1), { name: "Ed25519" }, false, ["verify"]) };
  }

  async function openNote(note, key) {
    const end = note.lastIndexOf("\n\n");
    if (end < 0 || !note.endsWith("\n")) throw new Wrong("There is no signature under an empty line.");
    const text = note.slice(0, end + 1);
    let good = false;
    for (const line of note.slice(end + 2, -1).split("\n")) {
      const [dash, name, encoded, ...more] = line.split(" ");
      if (dash !== "—" || encoded === undefined || more.length) throw new Wrong("A signature line is malformed.");
      const data = fromBase64(encoded);
      if (name !== key.name || hex(data.slice(0, 4)) !== key.id) continue;
      if (!await crypto.subtle.verify({ name: "Ed25519" }, key.key, data.slice(4), encoder.encode(text)))
        throw new Wrong("The signature is wrong: the text was changed after signing.");
      good = true;
    }
    if (!good) throw new Wrong("It is not signed with the key that you gave.");
    return text;
  }

  const int32 = v => { const b = new Uint8Array(4); new DataView(b.buffer).setInt32(0, v); return b; };
  const number = v => { const b = new Uint8Array(12), d = new DataView(b.buffer); d.setInt32(0, 8); d.setBigInt64(4, BigInt(v)); return b; };
  const sized = bytes => join(int32(bytes.length), bytes);
  const maybe = (value, write) => value === null || value === undefined ? int32(-1) : write(value);
  const moment = text => {
    const parts = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z$/.exec(text);
    if (!parts) throw new Wrong("A time is not written as it should be.");
    return BigInt(Date.parse(`${parts[1]}Z`)) * 1000n + BigInt((parts[2] || "").padEnd(6, "0"));
  };
  const body = e => join(
    number(e.model_id), number(e.seq), number(moment(e.at)), sized(encoder.encode(e.kind)), number(e.epoch), number(e.clock),
    number(e.rows), number(e.rho), number(e.rho_spent), maybe(e.rho_cap, number), maybe(e.tag, t => sized(fromHex(t))),
    maybe(e.detail, t => sized(encoder.encode(t))));

  // Whether a leaf and its siblings make the root (RFC 6962).
  async function climbs(leaf, index, size, proof, root) {
    if (!(index >= 0 && index < size)) return false;
    let node = leaf, last = size - 1;
    const half = v => Math.floor(v / 2);
    for (const sibling of proof) {
      if (last === 0) return false;
      if (index % 2 || index === last) {
        node = await sha256(Uint8Array.of(1), sibling, node);
        while (index % 2 === 0 && index) { index = half(index); last = half(last); }
      } else {
        node = await sha256(Uint8Array.of(1), node, sibling);
      }
      index = half(index); last = half(last);
    }
    return last === 0 && same(node, root);
  }

  async function included(proved, head, modelId) {
    const entry = proved.entry;
    if (entry.model_id !== modelId) throw new Wrong(`Ledger entry ${entry.seq} is of another model.`);
    const leaf = await sha256(Uint8Array.of(0), body(entry));
    if (!await climbs(leaf, entry.seq - 1, head.size, proved.proof.map(fromBase64), head.root))
      throw new Wrong(`Ledger entry ${entry.seq} is not under the signed root.`);
    return entry;
  }

  // The entry's tag is the key's own; or, of an entry about several rows, the root over theirs and the key's.
  async function opens(deletion, key) {
    const { rows, tag: root } = deletion.entry, tag = await hmac(fromHex(deletion.salt), key);
    if (rows === 1) return deletion.path == null && same(fromHex(root), tag);
    const leaf = await sha256(Uint8Array.of(0), tag);
    return Number.isInteger(deletion.place) && climbs(leaf, deletion.place, rows, deletion.path.map(fromHex), fromHex(root));
  }

  // delta(epsilon) of Gaussian noise, by Mills' ratio.
  function mills(x) {
    if (x < 2.5) {
      let term = x, total = 0;
      for (let k = 1; k <= 100 && term >= 1e-18; k++) { total += term; term *= x * x / (2 * k + 1); }
      return Math.sqrt(Math.PI / 2) * Math.exp(x * x / 2) - total;
    }
    let fraction = 0;
    for (let k = 200; k >= 1; k--) fraction = k / (x + fraction);
    return 1 / (x + fraction);
  }
  function deltaOf(epsilon, rho) {
    const mu = Math.sqrt(2 * rho), near = mu / 2 - epsilon / mu, density = Math.exp(-near * near / 2) / Math.sqrt(2 * Math.PI);
    return (near > 0 ? 1 - density * mills(near) : density * mills(-near)) - density * mills(mu / 2 + epsilon / mu);
  }
  function bisect(good, bad, holds) {
    for (let i = 0; i < 100; i++) { const middle = (good + bad) / 2; if (holds(middle)) good = middle; else bad = middle; }
    return good;
  }
  function epsilonOf(rho, delta) {
    if (rho === 0 || deltaOf(0, rho) <= delta) return 0;
    return bisect(rho + 2 * Math.sqrt(rho * Math.log(1 / delta)), 0, e => deltaOf(e, rho) <= delta);
  }
  function rhoOf(epsilon, delta) {
    let most = 1;
    while (deltaOf(epsilon, most) <= delta) most *= 2;
    return bisect(0, most, rho => rho === 0 || deltaOf(epsilon, rho) <= delta);
  }

  function sameWords(deletion, entry) {
    const other = what => new Wrong(`The receipt has another word on ${what} than ledger entry ${entry.seq}.`);
    const [kind, algorithm] = WORDS[`${entry.kind}|${entry.detail ?? ""}`] || ["", ""];
    if (!kind || deletion.kind !== kind || !deletion.algorithm.startsWith(algorithm)) throw other("what was done");
    if (deletion.executed !== entry.at) throw other("when it was done");
    if (deletion.requested !== null && deletion.requested > deletion.executed) throw other("when it was asked for");
    if (entry.detail === "exact" && [deletion.delta, deletion.epsilon_record, deletion.epsilon_epoch, deletion.epsilon_budget].some(v => v !== null))
      throw other("an epsilon or delta");
    if (!entry.rho && deletion.delta === null) return;
    if (deletion.delta === null) throw other("no delta");
    const delta = Number(deletion.delta);
    for (const [name, units] of [["epsilon_record", entry.rho], ["epsilon_epoch", entry.rho_spent]])
      if (!(Math.abs(Number(deletion[name]) - epsilonOf(units / UNITS, delta)) <= 2e-4)) throw other(name);
    if (entry.rho_cap !== null) {
      const cap = Math.floor(rhoOf(Number(deletion.epsilon_budget), delta) * UNITS);
      if (!(Math.abs(cap - entry.rho_cap) <= 1 + Math.floor(cap / 1e6))) throw other("the budget of epsilon and delta");
    }
  }

  async function shortKey(text) {
    const bytes = encoder.encode(text);
    return bytes.length <= 1000 ? text : `sha256:${hex(await sha256(bytes))}`;
  }

  const quoted = text => encodeURIComponent(text).replace(/[!'()*]/g, c => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

  async function check(receipt, publicKey, keyValue) {
    if (receipt.document !== "mempair deletion receipt" || ![1, 2].includes(receipt.version)) throw new Wrong("This is no receipt of a version that is known here.");
    if (!receipt.signature) throw new Wrong("This receipt is not signed, so it proves nothing.");
    const key = await readKey(publicKey);
    const { signature, ...content } = receipt;
    const digest = hex(await sha256(encoder.encode(canonical(content))));
    if (await openNote(signature, key) !== `mempair deletion receipt\nsha256 ${digest}\n`) throw new Wrong("The receipt was changed after it was signed.");
    const [origin, size, root] = (await openNote(receipt.checkpoint, key)).split("\n");
    const head = { size: Number(size), root: fromBase64(root) };
    if (!/^\d+$/.test(size) || head.root.length !== 32) throw new Wrong("The signed text is no checkpoint.");
    if (origin !== `${key.name}/${receipt.model_id}/${quoted(receipt.model)}`) throw new Wrong(`The checkpoint is of another ledger: ${origin}.`);
    const good = ["The signature is by the key that you gave, and nothing was changed since."], notes = [];
    if (keyValue) {
      if (await shortKey(keyValue) !== receipt.key) throw new Wrong("The receipt is for another key value than yours.");
      good.push("It is for your key value.");
    } else {
      notes.push("Your own key value was not given, so it was not compared.");
    }
    for (const deletion of receipt.deletions) {
      const entry = await included(deletion, head, receipt.model_id);
      if (!entry.tag || !await opens(deletion, receipt.key))
        throw new Wrong(`The tag of ledger entry ${entry.seq} is not made from the key value.`);
      sameWords(deletion, entry);
      if (entry.detail === "by exact retrain") {
        if (!deletion.retrain) throw new Wrong(`Ledger entry ${entry.seq} says "by exact retrain", and no retrain follows it.`);
        const done = await included(deletion.retrain, head, receipt.model_id);
        if (done.kind !== "retrained" || done.epoch !== entry.epoch || done.seq <= entry.seq) throw new Wrong(`Ledger entry ${done.seq} is not the retrain that entry ${entry.seq} speaks of.`);
      }
      if (deletion.state) {
        const state = await included(deletion.state, head, receipt.model_id);
        if (!["attested", "purged"].includes(state.kind) || !/; sha256 of the state: [0-9a-f]{64}$/.test(state.detail || "") || state.seq <= entry.seq)
          throw new Wrong(`Ledger entry ${state.seq} has no digest of the state after entry ${entry.seq}.`);
        notes.push(`Ledger entry ${state.seq} has the digest of the state then, which an export made before the state changed again can confirm.`);
      } else if (entry.detail === "exact") {
        notes.push(`The receipt names no digest of the state after ledger entry ${entry.seq}, so the model after it was not committed to.`);
      }
      good.push(`Row ${deletion.row}: ledger entry ${entry.seq} says the same, carries the key's tag and is under the signed root.`);
      if (deletion.requested) notes.push(`That row ${deletion.row} was asked for at ${deletion.requested} is what the database said.`);
      if (deletion.shard) notes.push(deletion.everywhere ? `That every shard had published without row ${deletion.row} at ${deletion.everywhere} is what the database said.`
        : `Shard ${deletion.shard} has forgotten row ${deletion.row}, another one had NOT published without it yet.`);
    }
    if (receipt.present_again) notes.push(`${receipt.present_again} of these rows were in the model again when the receipt was issued: they are NOT gone.`);
    return { good, notes };
  }

  function parsed(text) {
    try {
      const page = /<script type="application\/json" id="receipt">([\s\S]*?)<\/script>/.exec(text);
      const found = JSON.parse(page ? page[1] : text);
      if (found && typeof found === "object") return found;
    } catch { /* said below */ }
    throw new Wrong("The file holds no receipt.");
  }

  function item(list, tone, text) {
    const line = document.createElement("li");
    line.className = tone;
    line.textContent = text;
    list.append(line);
  }

  function show(tone, title, lines) {
    const verdict = document.getElementById("verdict"), head = document.createElement("p"), list = document.createElement("ul");
    head.className = `verdict ${tone}`;
    head.textContent = title;
    lines.forEach(([kind, text]) => item(list, kind, text));
    verdict.className = `outcome ${tone}`;
    verdict.replaceChildren(head, list);
    verdict.hidden = false;
  }

  async function run(form) {
    try {
      if (!globalThis.crypto || !crypto.subtle) throw new Wrong("This browser checks nothing on a page that came without encryption: save the page and open the file, or use `mempair receipt verify`.");
      const file = form.elements.file, fixed = document.getElementById("receipt");
      if (file && !file.files.length) throw new Wrong("Choose the receipt's file.");
      const receipt = parsed(file ? await file.files[0].text() : fixed.textContent);
      const { good, notes } = await check(receipt, form.elements.public_key.value, form.elements.key_value.value.trim());
      const says = `${receipt.model} on ${receipt.source}: ${receipt.deletions.length} deletion${receipt.deletions.length === 1 ? "" : "s"} for ${receipt.key_is} = ${receipt.key}, issued ${receipt.issued}`;
      show("holds", "This receipt is genuine.", [["soft", says], ...good.map(t => ["holds", t]), ...notes.map(t => ["open", t])]);
    } catch (error) {
      const text = error instanceof Wrong ? error.message : error instanceof DOMException && error.name === "NotSupportedError"
        ? "This browser has no Ed25519: use a newer one, or `mempair receipt verify`." : `This is no complete receipt (${error.message}).`;
      show("fails", "This receipt is NOT proven genuine.", [["fails", text]]);
    }
  }

  const form = document.getElementById("check");
  form.addEventListener("submit", event => { event.preventDefault(); run(form); });
  form.querySelector("button").disabled = false;
})();
