"""An elastic launcher with the behaviour that Horovod's workers expect: it starts a process for each slot, and a new
generation once every slot has requested its next rank or ended. Written from Horovod's known behaviour only. All hosts
are this machine."""

import os
import signal
import subprocess
import threading

import server

REMOVED = ",".join(["-1"] * 6)


class Handler(server.Handler):
    timeout = 60

    def do_GET(self):
        if not self.path.startswith("/rank_and_size/"):
            super().do_GET()
            return
        host, slot = self.path.split("/")[2].rsplit(":", 1)
        self.answer(200, self.server.next_place(host, int(slot)).encode())


class Driver(server.Server):
    """Runs `command` on `hosts`, a list of (name, slots) that the caller may change at any time. The next generation
    has the hosts at that time, without hosts of failed processes."""

    handler = Handler

    def __init__(self, hosts, command, folder, environment):
        super().__init__({})
        self.hosts, self.command, self.folder, self.environment = hosts, command, folder, environment
        self.changed = threading.Condition()
        self.generation, self.reports, self.places = 0, {}, {}
        self.processes, self.failed, self.started = {}, set(), []
        with self.changed:
            self.begin()

    def begin(self):
        """Plans a generation; its new processes have their ranks in their environment."""
        hosts = [(name, slots) for name, slots in self.hosts if name not in self.failed]
        slots = [(name, slot) for name, count in hosts for slot in range(count)]
        with self.lock:
            self.values.clear()
            self.sizes, self.finished = {"global": len(slots)}, {}
        self.reports, self.places = {}, {}
        for rank, (name, slot) in enumerate(slots):
            column = [other for other, count in hosts if count > slot]
            self.places[name, slot] = (rank, len(slots), slot, dict(hosts)[name], column.index(name), len(column))
        self.generation += 1
        for place in slots:
            if place not in self.processes:
                self.start(place)
        self.changed.notify_all()

    def start(self, place):
        names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE".split()
        variables = dict(zip(names, self.places[place])) | {
            "HOSTNAME": place[0],
            "CONTROLLER": "gloo",
            "CPU_OPERATIONS": "gloo",
            "GLOO_IFACE": "lo",
            "GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "GLOO_RENDEZVOUS_PORT": self.port,
            "ELASTIC": 1,
        }
        environment = self.environment | {f"HOROVOD_{name}": str(value) for name, value in variables.items()}
        path = os.path.join(self.folder, f"{place[0]}:{place[1]}")
        with open(path, "w") as output:
            process = subprocess.Popen(self.command, env=environment, stdout=output, stderr=output)
        self.processes[place] = process
        self.started.append(process)
        threading.Thread(target=self.watch, args=(place, process), daemon=True).start()

    def watch(self, place, process):
        code = process.wait()
        with self.changed:
            if self.processes.get(place) is process:
                del self.processes[place]
            if place not in self.places or self.reports.get(place) == "killed":
                return  # the process has lost its rank
            self.report(place, "success" if code == 0 else "failure")
            if code:
                self.failed.add(place[0])
                for other, beside in list(self.processes.items()):
                    if other[0] == place[0]:
                        beside.send_signal(signal.SIGTERM)
            self.go_on()

    def next_place(self, host, slot):
        with self.changed:
            generation = self.generation
            self.report((host, slot), "ready")
            self.go_on()
            self.changed.wait_for(lambda: self.generation > generation)
            place = self.places.get((host, slot))
            return ",".join(map(str, place)) if place else REMOVED

    def report(self, place, what):
        self.reports[place] = what

    def go_on(self):
        if set(self.reports) < set(self.places) or "success" in self.reports.values():
            return
        if "ready" in self.reports.values():
            self.begin()

    def said(self):
        """Returns the output of each slot's process, by "host:slot"."""
        found = {}
        for name in os.listdir(self.folder):
            with open(os.path.join(self.folder, name)) as file:
                found[name] = file.read()
        return found

    def wait(self, seconds):
        """Waits until all processes have ended, and returns their exit codes in the order of their start."""
        codes = []
        for process in self.started:  # the list may grow meanwhile
            codes.append(process.wait(seconds))
        return codes

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
        self.shutdown()
        self.server_close()
