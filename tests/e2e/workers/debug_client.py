#!/usr/bin/python3
"""An editor that debugs a Python program with debugpy: attaches at a port, and lets the program continue some seconds
after it has stopped at a breakpoint. usage: debug_client.py PORT SECONDS"""

import json
import socket
import sys
import time

port, seconds = int(sys.argv[1]), float(sys.argv[2])
connection = socket.create_connection(("127.0.0.1", port))
messages = connection.makefile("rb")
number = 0


def send(command, **arguments):
    global number
    number += 1
    body = json.dumps({"seq": number, "type": "request", "command": command, "arguments": arguments}).encode()
    connection.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)


def wait_for(kind, name):
    while True:
        size = 0
        while (line := messages.readline().strip()) or not size:
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        message = json.loads(messages.read(size))
        if message["type"] == kind and name in (message.get("event"), message.get("command")):
            return message


send("initialize", adapterID="test", clientID="test")
wait_for("response", "initialize")
send("attach", justMyCode=False)
wait_for("event", "initialized")
send("configurationDone")
wait_for("response", "attach")
stopped = wait_for("event", "stopped")
time.sleep(seconds)
send("continue", threadId=stopped["body"]["threadId"])
wait_for("response", "continue")
send("disconnect", terminateDebuggee=False)
