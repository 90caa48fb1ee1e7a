"""The rendezvous server, under the name that scripts import."""
