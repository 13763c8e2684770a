"""Stores values of some size in a memcached and fetches them, from several threads.

    memcached.py ADDRESS PORT
"""
import socket
import sys
import threading

failed = []


def ask(number):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    stream = connection.makefile("rwb")
    for turn in range(10):
        key, value = b"key-%d-%d" % (number, turn), b"%d" % turn * 15000
        stream.write(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        stream.write(b"get %s\r\n" % key)
        stream.flush()
        assert stream.readline() == b"STORED\r\n"
        assert stream.readline() == b"VALUE %s 0 %d\r\n" % (key, len(value))
        assert stream.read(len(value) + 2) == value + b"\r\n"
        assert stream.readline() == b"END\r\n"
    connection.close()


def run(number):
    try:
        ask(number)
    except BaseException as error:
        failed.append(error)
        raise


threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(len(failed))
