"""One connection to an MQTT broker."""

import asyncio
import secrets
from dataclasses import dataclass
from typing import ClassVar

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.broker.wire import BrokerError, BrokerWire
from pillion_sidecar.handlers.mqtt import packets
from pillion_sidecar.handlers.mqtt.packets import Packet, Properties, Reader
from pillion_sidecar.handlers.mqtt.reasons import FAILURE, HOLDS, reason_text
from pillion_sidecar.handlers.transport.wire import WireOwner

#: Status of an answer; all others are reasons.
TOO_LARGE = 413
_LAST_NUMBER = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """What all connections of a destination have in common."""

    topic: bytes
    qos: int
    retain: bool
    #: Of a message.
    properties: bytes
    #: Seconds without a packet after which the broker may close the connection.
    keep_alive: int
    credentials: Credentials | None
    #: No text of the broker is shown.
    discreet: bool

    def connect(self) -> bytes:
        """Each connection is a client of its own: several deliverers may have the destination, and
        a broker closes the older one of two with one name. Servers must take 23 letters and digits
        (3.1.3.1)."""
        username = password = None
        credentials = self.credentials
        if credentials is not None and credentials.bearer_token is not None:
            password = credentials.bearer_token.strip()
        elif credentials is not None:
            username, password = credentials.username, credentials.password
        return packets.connect(
            client=b"pillion%b" % secrets.token_hex(8).encode("ascii"),
            keep_alive=self.keep_alive,
            username=None if username is None else username.encode(),
            password=None if password is None else password.encode(),
        )


class MQTTWire(BrokerWire):
    """Requests are payloads."""

    farewell: ClassVar[bytes] = packets.NORMAL_DISCONNECTION
    __slots__ = (
        "_most",
        "_number",
        "_pause",
        "_publishing",
        "_reader",
        "_received",
        "_timer",
        "_timers",
    )

    def __init__(
        self, owner: WireOwner, *, buffer: memoryview, timers: Timers, publishing: Publishing
    ) -> None:
        super().__init__(owner, buffer=buffer, discreet=publishing.discreet)
        self._publishing = publishing
        self._timers = timers
        # For the keep alive of a broker that wants a shorter one.
        self._timer: Timer | None = None
        self._pause = 0.0
        self._reader = Reader()
        #: Maximum bytes of a packet, if the broker has a limit.
        self._most: int | None = None
        #: Reason of the PUBREC of the message under way.
        self._received: int | None = None
        self._number = 0
        self.doing = "waiting for the broker's CONNACK"

    def log_in(self) -> None:
        self.write(self._publishing.connect())

    def publish(self, request: bytes) -> None:
        publishing = self._publishing
        self._number = self._number % _LAST_NUMBER + 1
        packet = packets.publish(
            request,
            topic=publishing.topic,
            qos=publishing.qos,
            retain=publishing.retain,
            number=self._number,
            properties=publishing.properties,
        )
        if self._most is not None and len(packet) > self._most:
            text = b"the packet has %d bytes, and the broker takes %d" % (len(packet), self._most)
            asyncio.get_running_loop().call_soon(self.answered, TOO_LARGE, text)
            return
        if publishing.qos == 0:
            # Brokers read packets in order.
            self.pinged()
        self.write(packet if publishing.qos else packet + packets.PINGREQ)

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        super().close()

    def received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            if self._is_ready:
                self._take(packet)
            else:
                self._let_in(packet)
            if self._owner is None:
                return

    def _let_in(self, packet: Packet) -> None:
        if packet.type == packets.DISCONNECT:
            raise self._error(packet)
        if packet.type != packets.CONNACK:
            raise BrokerError("the peer does not speak MQTT: it sends no CONNACK")
        reason, properties = packets.read_connack(packet.body)
        if 0 < reason < FAILURE:
            # The code of an earlier version.
            raise BrokerError("the broker does not speak MQTT 5", hold=HoldCause.DESTINATION)
        if reason:
            text = properties.get(packets.REASON_STRING)
            raise self._refusal(reason, text if isinstance(text, bytes) else b"")
        self._check(properties)
        self.logged_in()

    def _check(self, properties: Properties) -> None:
        most, qos = properties.get(packets.MOST_PACKET_BYTES), properties.get(packets.MOST_QOS)
        if isinstance(qos, int) and qos < self._publishing.qos:
            message = f"the broker takes messages with QoS {qos} at most"
            raise BrokerError(message, hold=HoldCause.DESTINATION)
        if self._publishing.retain and properties.get(packets.RETAIN_AVAILABLE) == 0:
            message = "the broker retains no messages: write mqtt.retain: false"
            raise BrokerError(message, hold=HoldCause.DESTINATION)
        if most == 0:
            # MQTT 5, 3.2.2.3.6.
            raise BrokerError("the broker takes no packet at all, which is a protocol error")
        if isinstance(most, int):
            self._most = most
        keep_alive = properties.get(packets.SERVER_KEEP_ALIVE)
        if isinstance(keep_alive, int) and 0 < keep_alive < self._publishing.keep_alive:
            # A broker waits for half as long again.
            self._pause = float(keep_alive)
            self._timer = self._timers.call_later(self._pause, self._ping)

    def _ping(self) -> None:
        self._timer = self._timers.call_later(self._pause, self._ping)
        self.pinged()
        self.write(packets.PINGREQ)

    def ponged(self) -> None:
        super().ponged()
        if self._publishing.qos == 0 and self._pings == 0:
            self.answered(0)

    def _take(self, packet: Packet) -> None:
        qos = self._publishing.qos
        match packet.type:
            case packets.PUBACK if qos == 1:
                self._acknowledged(packet)
            case packets.PUBREC if qos == 2:
                self._taken(packet)
            case packets.PUBCOMP if qos == 2:
                self._completed(packet)
            case packets.PINGRESP:
                self.ponged()
            case packets.DISCONNECT:
                raise self._error(packet)
            case _:
                raise BrokerError(f"the broker sends an unexpected packet of type {packet.type}")

    def _read(self, packet: Packet) -> packets.Answer:
        answer = packets.read_answer(packet)
        if answer.number != self._number or not self._busy:
            raise BrokerError("the broker acknowledges a message that is not under way")
        return answer

    def _acknowledged(self, packet: Packet) -> None:
        answer = self._read(packet)
        self.answered(answer.reason, answer.text)

    def _taken(self, packet: Packet) -> None:
        answer = self._read(packet)
        if answer.reason >= FAILURE:
            self.answered(answer.reason, answer.text)
        else:
            self._received = answer.reason
            self.write(packets.release(answer.number))

    def _completed(self, packet: Packet) -> None:
        answer = self._read(packet)
        if answer.reason >= FAILURE:
            raise BrokerError(f"the broker answers PUBREL with {reason_text(answer.reason)}")
        received, self._received = self._received, None
        if received is None:
            raise BrokerError("the broker completes a message that it has not received")
        # PUBREC tells whether there are subscribers.
        self.answered(received)

    def _error(self, packet: Packet) -> BrokerError:
        answer = packets.read_answer(packet)
        return self._refusal(answer.reason, answer.text)

    def _refusal(self, reason: int, text: bytes) -> BrokerError:
        said = f": {self.said(text)}" if text else ""
        message = f"the broker ends the connection, {reason_text(reason)}{said}"
        return BrokerError(message, hold=HOLDS.get(reason))
