"""Names, places, things and numbers that fill templates. Names of the test appear nowhere in training."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping

_POOLS: Mapping[str, str] = {
    "person": "Anna Ben Carla David Elena Felix Greta Hassan Ines Jonas Karim Lena Marco Nadia Oscar "
    "Paula Quentin Rosa Samir Tara Ugo Vera Walter Xenia Yusuf Zoe Amir Bianca Chen Dora "
    "Emil Fatima Goran Hanna Ivan Julia Kofi Laura Mina Nils Olga Pedro Rahel Stefan Tomas "
    "Ursula Viktor Wanda Yara Zeno Abdul Agnes Aisha Albert Andrea Anton Astrid Bernard "
    "Birgit Bruno Camille Cedric Clara Colin Daphne Deborah Diego Edith Edgar Elif Enzo Erik "
    "Esther Farid Fiona Frida Gabriel Gloria Gustav Hector Helena Hugo Ibrahim Irene Isabel "
    "Jakub Jasmin Jorge Judith Katrin Kenji Klara Lars Leyla Lorenz Linus Lucia Magda Malik "
    "Martha Mehmet Milan Miriam Naomi Noah Omar Patrick Philip Priya Rafael Ravi Rita Robert "
    "Ruben Sabine Selma Sofia Sven Tamara Theo Tina Umar Vincent Winston Yuki",
    "city": "Berlin Madrid Lisbon Vienna Oslo Prague Dublin Athens Warsaw Helsinki Zurich Geneva "
    "Lyon Porto Naples Turin Seville Krakow Bergen Ghent Leeds Bristol Denver Austin Boston "
    "Chicago Toronto Montreal Sydney Perth Nairobi Cairo Lagos Delhi Mumbai Tokyo Osaka "
    "Seoul Hanoi Lima Bogota Quito Amsterdam Antwerp Ankara Auckland Bangkok Barcelona Basel "
    "Belfast Bremen Brisbane Bruges Budapest Calgary Cardiff Cologne Copenhagen Dakar Dallas "
    "Dresden Edinburgh Glasgow Gothenburg Granada Hamburg Houston Istanbul Izmir Jakarta "
    "Kampala Kyoto Leipzig Liverpool Ljubljana Malaga Manila Marseille Melbourne Memphis "
    "Munich Nagoya Nantes Ottawa Palermo Portland Riga Rotterdam Salzburg Santiago Seattle "
    "Tallinn Utrecht Vilnius",
    "product": "lamp|kettle|phone|laptop|chair|jacket|headset|watch|tablet|camera|backpack|blender|"
    "toaster|printer|bicycle|tent|mixer|router|speaker|monitor|keyboard|heater|"
    "vacuum cleaner|coffee machine|sofa|drill|razor|scooter|guitar|microscope|projector|"
    "stroller|desk|mattress|pillow|blanket|carpet|mirror|bookshelf|wardrobe|garden table|"
    "bread knife|frying pan|rice cooker|washing machine|dishwasher|fridge|freezer|microwave|"
    "hair dryer|sewing machine|lawn mower|ladder|toolbox|hammer|saw|raincoat|sweater|dress|"
    "handbag|suitcase|wallet|helmet|skateboard|football|tennis racket|sleeping bag|"
    "water bottle|thermometer|piano|violin|drum kit|radio|record player|memory card|"
    "phone case|charger|power bank|webcam|smoke detector|doorbell|baby monitor|puzzle|"
    "board game|telescope|fitness tracker",
    "company": "Norvik Lumora Batela Quintex Ardena Solvane Mirotec Kestrel Halden Ostara Veltron "
    "Pamira Trellis Corvina Nimbus Feldmark Altona Brixen Calista Dorvale Engrava Fontaris "
    "Gelmora Hartwell Invaro Jorvane Kalento Lindaro Maventa Nordelle Orlitec Pelvana Quarvo "
    "Rendalis Sorvanti Tarvelo Ulmera Vandoric Westrell Xandora Ypsilor Zentavo Brevano "
    "Cobaltic Delmare Evantis Fjordane Glasmark Holmeria Ivenco Jaspero Kronvale Lutessa "
    "Morvello",
}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def _split_words(words: list[str]) -> dict[str, list[str]]:
    """A fifth for the test, a tenth for validation, by hash."""
    ranked = sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())
    test, validation = len(ranked) // 5, len(ranked) // 5 + len(ranked) // 10
    return {"test": ranked[:test], "validation": ranked[test:validation], "train": ranked[validation:]}


class Entities:
    """The values that one split may use."""

    def __init__(self, split: str) -> None:
        self.pools = {
            name: _split_words(text.split("|") if "|" in text else text.split())[split]
            for name, text in _POOLS.items()
        }

    def draw(self, slot: str, rng: random.Random) -> str:
        """A value for <slot>. Raises KeyError for a slot that does not exist."""
        if slot in self.pools:
            return rng.choice(self.pools[slot])
        return _NUMBERS[slot](rng, self)


def _email(rng: random.Random, entities: Entities) -> str:
    return f"{entities.draw('person', rng).lower()}@{entities.draw('company', rng).lower()}.example"


_NUMBERS: Mapping[str, Callable[[random.Random, Entities], str]] = {
    "number": lambda rng, _: str(rng.randint(2, 30)),
    "amount": lambda rng, _: f"${rng.randint(5, 400)}",
    "order": lambda rng, _: f"{rng.choice('ABKR')}{rng.randint(1000, 9999)}",
    "code": lambda rng, _: f"E{rng.randint(100, 999)}",
    "phone": lambda rng, _: f"0{rng.randint(30, 89)} {rng.randint(100000, 999999)}",
    "weekday": lambda rng, _: rng.choice(WEEKDAYS),
    "month": lambda rng, _: rng.choice(MONTHS),
    "date": lambda rng, _: f"{rng.randint(1, 28)} {rng.choice(MONTHS)}",
    "email": _email,
}
