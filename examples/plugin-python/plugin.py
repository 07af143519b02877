#!/usr/bin/python3
"""A plugin in Python: it welcomes new accounts by a task, checks their names
and serves a route, a service and a kind of flow node. See README.md.

Only grpcio and protobuf are needed. ``plugin_pb2.py`` is made of the protocol,
pluginsdk/proto/v1/plugin.proto; the services have no generated code, a table of
handlers does.
"""

import json
import logging
import os
import signal
import sys
import threading
from concurrent import futures

import grpc

import plugin_pb2 as pb

SERVICE = "objecthost.plugin.v1."
PASSED_ON = ("objecthost-call", "traceparent", "tracestate")

# What the plugin adds to the host, as the manifest of its bundle has it.
DESCRIPTION = {
    "id": "com.example.welcome",
    "version": "1.0.0",
    "contributes": {
        "namespace": "welcome",
        "objects": [{"name": "welcome_task", "label": "Task", "fields": {"subject": {"type": "text", "label": "Subject"}}}],
        "routes": [{"method": "GET", "pattern": "/greeting/{name}", "summary": "Greet somebody"}],
        "events": [{"name": "welcome", "object": "crm_account", "types": ["data.record.created"], "batch": 50}],
        "before": [{"object": "crm_account", "operations": ["create", "update"], "deadlineMs": 2000, "onError": "fail_closed"}],
        "services": ["welcome.score"],
        "nodes": [
            {
                "type": "welcome.greeting",
                "name": "Write a greeting",
                "description": "Greets somebody in a language: en, de or fr.",
                "category": "welcome",
                "configSchema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "language": {"type": "string"}},
                },
                "pure": True,
                "deadlineMs": 5000,
            }
        ],
    },
}


GREETINGS = {"en": "Hello", "de": "Hallo", "fr": "Bonjour"}


class JSONLines(logging.Formatter):
    """Writes the log as the host reads it."""

    def format(self, record):
        return json.dumps({"level": record.levelname, "msg": record.getMessage()})


log = logging.getLogger("welcome")


class Host:
    """The host's API, as far as this plugin needs it."""

    def __init__(self, address, token):
        self.channel = grpc.insecure_channel("unix:" + address)
        self.token = token

    def call(self, method, request, answer, context=None):
        metadata = [("objecthost-token", self.token)]
        if context is not None:  # tells the host which call and trace the work belongs to
            metadata += [(k, v) for k, v in context.invocation_metadata() if k in PASSED_ON]
        stub = self.channel.unary_unary(
            "/" + SERVICE + "Host/" + method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return stub(request, metadata=metadata, timeout=30)

    def create(self, obj, values, context=None):
        request = pb.CreateRequest(object=obj, values=json.dumps(values).encode())
        return json.loads(self.call("Create", request, pb.RecordResponse, context).record)


class Plugin:
    """The service objecthost.plugin.v1.Plugin."""

    host = None

    def Describe(self, request, context):
        return pb.Description(
            id=DESCRIPTION["id"],
            version=DESCRIPTION["version"],
            contributions=json.dumps(DESCRIPTION["contributes"]).encode(),
            sdk="plain grpcio",
        )

    def Init(self, request, context):
        self.host = Host(request.host_address, request.host_token)
        log.info("ready to welcome")
        return pb.InitResponse()

    def Start(self, request, context):
        return pb.StartResponse()

    def Stop(self, request, context):
        return pb.StopResponse()

    def Health(self, request, context):
        return pb.HealthResponse()

    def BeforeWrite(self, request, context):
        values = json.loads(request.values or b"{}")
        name = values.get("name")
        if name is None:
            return pb.WriteDecision()
        if not name.strip():
            return pb.WriteDecision(refusal=pb.Error(code="NAME_EMPTY", message="A name is needed", field="name"))
        return pb.WriteDecision(changes=json.dumps({"name": name.strip()}).encode())

    def AfterWrite(self, request, context):
        return pb.AfterWriteResponse()

    def HandleEvents(self, batches, context):
        for batch in batches:
            try:
                for text in batch.events:
                    event = json.loads(text)
                    # Events come at least once: the task's own id makes the
                    # second time a conflict instead of a second task.
                    task = {"id": event["recordId"], "subject": "Welcome " + event["after"]["name"]}
                    try:
                        self.host.create("welcome_task", task, context)
                    except grpc.RpcError as error:
                        if "UNIQUE_VIOLATION" not in str(error.trailing_metadata()):
                            raise
                yield pb.EventAck(number=batch.number)
            except Exception as error:  # the batch comes again
                log.error("welcome: %s", error)
                yield pb.EventAck(number=batch.number, error=pb.Error(code="INTERNAL_ERROR", message=str(error)))

    def ServeHTTP(self, parts, context):
        head = next(parts).head
        name = head.target.split("?")[0].rsplit("/", 1)[-1]
        body = json.dumps({"success": True, "data": "Hello " + name}).encode()
        headers = [pb.Header(name="Content-Type", value="application/json")]
        yield pb.HTTPResponse(head=pb.HTTPResponseHead(status=200, headers=headers), body=body)

    def Call(self, request, context):
        account = json.loads(request.payload or b"{}")
        return pb.ServiceAnswer(payload=json.dumps({"score": len(account.get("name", ""))}).encode())


    def RunNode(self, request, context):
        config = json.loads(request.config or b"{}")
        language = config.get("language", "en")
        if language not in GREETINGS:  # trying again would not help
            return pb.NodeResult(error=pb.Error(code="LANGUAGE_UNKNOWN", message=f"no greeting in {language}", field="language"))
        text = GREETINGS[language] + " " + config["name"]
        return pb.NodeResult(output=json.dumps({"text": text}).encode())


def handlers(plugin):
    """The table of the service's methods."""
    encode = lambda message: message.SerializeToString()
    unary = {
        "Describe": pb.DescribeRequest, "Init": pb.InitRequest, "Start": pb.StartRequest, "Stop": pb.StopRequest,
        "Health": pb.HealthRequest, "BeforeWrite": pb.WriteCall, "AfterWrite": pb.WriteCall, "Call": pb.ServiceCall,
        "RunNode": pb.NodeCall,
    }
    streams = {"HandleEvents": pb.EventBatch, "ServeHTTP": pb.HTTPRequest}
    table = {n: grpc.unary_unary_rpc_method_handler(getattr(plugin, n), t.FromString, encode) for n, t in unary.items()}
    table |= {n: grpc.stream_stream_rpc_method_handler(getattr(plugin, n), t.FromString, encode) for n, t in streams.items()}
    serving = grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01", None, None)  # status SERVING
    return [
        grpc.method_handlers_generic_handler(SERVICE + "Plugin", table),
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": serving}),
    ]


def main():
    if sys.argv[1:] == ["describe"]:
        json.dump(DESCRIPTION, sys.stdout, indent=2)
        return
    if os.environ.get("OBJECTHOST_PLUGIN") != "v1":
        sys.exit("This is a plugin of objecthost: the host starts it.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])

    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=16),
        options=[("grpc.max_receive_message_length", 16 << 20), ("grpc.max_send_message_length", 16 << 20)],
    )
    server.add_generic_rpc_handlers(handlers(Plugin()))
    path = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "plugin.sock")
    server.add_insecure_port("unix:" + path)
    server.start()

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())

    def watch_host():  # standard input ends when the host has died
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch_host, daemon=True).start()
    print(f"1|1|unix|{path}|grpc|", flush=True)
    ended.wait()
    server.stop(grace=2).wait()


if __name__ == "__main__":
    main()
