// Answers as Azure Service Bus does, as far as its SDK for queues needs it, in memory: AMQP 1.0 by rhea.
//   node service_bus.js PORT KEYNAME KEY
// It is no Service Bus: messages are lost when it ends; locks do not expire, sessions have no state, and there are no
// rules. A queue exists when it is first used, unless its name begins with "missing"; one whose name begins with "once"
// drops a message whose id it has seen; one whose name begins with "sessions" requires sessions.
const crypto = require("crypto");
const rhea = require("rhea");
const [port, keyName, key] = process.argv.slice(2);
const container = rhea.create_container({ id: "service-bus" });
const queues = new Map();
const BATCH = 0x80013700; // the format of a message whose sections are messages
const FILTER = "com.microsoft:session-filter";
let sequence = 0;

function queue(name) {
  if (!queues.has(name)) queues.set(name, { waiting: [], readers: new Set(), seen: new Set(), accepting: new Set() });
  return queues.get(name);
}

function requires_sessions(name) {
  return name.startsWith("sessions") && !name.toLowerCase().includes("$deadletterqueue");
}

function put(name, message) {
  const at = queue(name);
  if (name.startsWith("once")) {
    if (at.seen.has(message.message_id)) return;
    at.seen.add(message.message_id);
  }
  message.message_annotations = {
    ...message.message_annotations,
    "x-opt-sequence-number": rhea.types.wrap_ulong(++sequence),
    "x-opt-enqueued-time": rhea.types.wrap_timestamp(Date.now()),
  };
  at.waiting.push(message);
  grant(at);
  hand_out(at);
}

function hand_out(at) {
  for (const reader of at.readers) {
    while (at.waiting.length && reader.sendable()) {
      const next = reader.of === undefined ? 0 : at.waiting.findIndex((each) => each.group_id === reader.of);
      if (next < 0) break;
      const [message] = at.waiting.splice(next, 1);
      message.message_annotations["x-opt-locked-until"] = rhea.types.wrap_timestamp(Date.now() + 60000);
      const tag = crypto.randomBytes(16);
      reader.locked.set(tag.toString("hex"), message);
      reader.send(message, tag);
    }
  }
}

// A link that asks for a session is answered when there is one that nobody else has, or after the time that it names.
function accept(sender, at, wanted) {
  sender.state.local_open = false; // rhea has opened it already, and has not said so yet
  sender.state.open_requests--;
  const properties = sender.remote.attach.properties || {};
  const wait = Number(properties["com.microsoft:timeout"] || 65000);
  const asking = { sender, wanted };
  asking.timer = setTimeout(() => {
    at.accepting.delete(asking);
    sender.open();
    sender.close({ condition: "com.microsoft:timeout", description: "no session is there" });
  }, wait);
  at.accepting.add(asking);
  grant(at);
}

function grant(at) {
  for (const asking of at.accepting) {
    const taken = new Set([...at.readers].map((each) => each.of));
    const ids = asking.wanted === null ? at.waiting.map((each) => each.group_id) : [asking.wanted];
    const id = ids.find((each) => each !== undefined && each !== null && !taken.has(each));
    if (id === undefined) continue;
    clearTimeout(asking.timer);
    at.accepting.delete(asking);
    const { sender } = asking;
    if (sender.is_closed()) continue;
    sender.of = id;
    at.readers.add(sender);
    sender.set_source({ address: sender.source.address, filter: { [FILTER]: id } });
    sender.set_target({ address: sender.target.address });
    const ticks = (BigInt(Date.now()) + 62135596800000n + 60000n) * 10000n;
    sender.local.attach.properties = { "com.microsoft:locked-until-utc": rhea.types.wrap_long(Number(ticks)) };
    sender.open();
  }
}

function name_of(terminus) {
  const address = terminus && terminus.address ? terminus.address : "";
  return address.replace(/^amqps?:\/\/[^/]*\//, "").replace(/^\//, "");
}

function is_signed(token) {
  const parts = Object.fromEntries(new URLSearchParams(String(token).replace("SharedAccessSignature ", "")));
  const text = `${encodeURIComponent(parts.sr)}\n${parts.se}`;
  const lower = text.replace(/%[0-9A-F]{2}/g, (found) => found.toLowerCase());
  const wanted = [text, lower].map((each) => crypto.createHmac("sha256", key).update(each).digest("base64"));
  return parts.skn === keyName && wanted.includes(parts.sig);
}

function reply(connection, to, message, code, description) {
  const answer = { correlation_id: message.message_id, application_properties: {}, body: "" };
  const field = to === "$cbs" ? ["status-code", "status-description"] : ["statusCode", "statusDescription"];
  answer.application_properties[field[0]] = rhea.types.wrap_int(code);
  answer.application_properties[field[1]] = description;
  connection.answers[to].send(answer);
}

container.sasl_server_mechanisms.enable_anonymous();
container.sasl_server_mechanisms["MSSBCBS"] = container.sasl_server_mechanisms["ANONYMOUS"];

function sent(delivery, message) {
  if (delivery.format !== BATCH) return [message];
  const { content, multiple } = rhea.message.decode(message).body; // rhea leaves other formats as they are
  return (multiple ? content : [content]).map((each) => rhea.message.decode(each));
}

function echo(link) {
  link.set_source({ address: link.source.address });
  link.set_target({ address: link.target.address });
}

container.on("sender_open", ({ sender, connection }) => {
  const name = name_of(sender.source);
  const filter = (sender.source && sender.source.filter) || {};
  connection.answers = connection.answers || {};
  if (connection.allowed && FILTER in filter !== requires_sessions(name) && !name.startsWith("$")) {
    const kind = requires_sessions(name) ? "requires sessions" : "does not require sessions";
    return sender.close({ condition: "amqp:not-allowed", description: `no sessionful receiver fits: ${name} ${kind}` });
  }
  if (!(FILTER in filter)) echo(sender);
  if (name === "$cbs") return void (connection.answers[name] = sender);
  if (name.startsWith("missing")) return sender.close({ condition: "amqp:not-found", description: `no entity ${name}` });
  if (!connection.allowed) return sender.close({ condition: "amqp:unauthorized-access", description: "no token" });
  sender.locked = new Map();
  sender.queue = queue(name);
  sender.entity = name;
  if (FILTER in filter) return accept(sender, sender.queue, filter[FILTER]);
  sender.queue.readers.add(sender);
});
container.on("receiver_open", ({ receiver, connection }) => {
  const name = name_of(receiver.target);
  echo(receiver);
  if (name.startsWith("missing")) {
    return receiver.close({ condition: "amqp:not-found", description: `no entity ${name}` });
  }
  if (name !== "$cbs" && !connection.allowed) {
    return receiver.close({ condition: "amqp:unauthorized-access", description: "no token" });
  }
});
container.on("sendable", ({ sender }) => sender.queue && hand_out(sender.queue));
container.on("message", ({ message, delivery, receiver, connection }) => {
  const name = name_of(receiver.target);
  if (name !== "$cbs") return sent(delivery, message).forEach((each) => put(name, each));
  connection.allowed = connection.allowed || is_signed(message.body);
  if (is_signed(message.body)) reply(connection, name, message, 202, "Accepted");
  else reply(connection, name, message, 401, "InvalidSignature: The token has an invalid signature.");
});
function settled(sender, delivery, then, state = delivery.remote_state) {
  if (!sender.locked) return;
  const tag = Buffer.from(delivery.tag).toString("hex");
  const message = sender.locked.get(tag);
  sender.locked.delete(tag);
  delivery.update(true, state.described()); // the client waits for it
  if (message) then(message);
}
container.on("accepted", ({ sender, delivery }) => settled(sender, delivery, () => {}));
container.on("rejected", ({ sender, delivery }) =>
  settled(sender, delivery, (message) => bury(sender.entity, message, delivery), rhea.message.rejected({})),
);
function bury(entity, message, delivery) {
  const error = delivery.remote_state.error || {};
  const reasons = error.info || {};
  message.application_properties = { ...message.application_properties, ...reasons };
  put(`${entity}/$DeadLetterQueue`, message);
}
function again(sender, message) {
  message.delivery_count = (message.delivery_count || 0) + 1;
  sender.queue.waiting.unshift(message);
  hand_out(sender.queue);
}
for (const event of ["released", "modified"]) {
  container.on(event, ({ sender, delivery }) => settled(sender, delivery, (message) => again(sender, message)));
}
function gone(sender) {
  if (!sender.locked) return;
  sender.queue.readers.delete(sender);
  for (const message of [...sender.locked.values()].reverse()) again(sender, message);
  sender.locked.clear();
  grant(sender.queue);
  hand_out(sender.queue);
}
container.on("sender_close", ({ sender }) => gone(sender));
for (const event of ["connection_close", "disconnected"]) {
  container.on(event, ({ connection }) => connection.each_sender && connection.each_sender(gone));
}
container.on("connection_error", () => {});
container.on("session_error", () => {});
container.listen({
  host: "127.0.0.1",
  port: Number(port),
  sender_options: { autosettle: false, snd_settle_mode: 0 },
  receiver_options: { max_message_size: 20000000 },
});
