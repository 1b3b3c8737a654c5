# SPDX-License-Identifier: Apache-2.0
"""Generates plain English stories from a small grammar: people and animals, places, weather, lost things and lessons.
Names and things stay the same in a story."""

import random

PEOPLE = [
    ("Anna", "girl"),
    ("Mia", "girl"),
    ("Lily", "girl"),
    ("Sara", "girl"),
    ("Rosa", "girl"),
    ("Emma", "girl"),
    ("Ben", "boy"),
    ("Tom", "boy"),
    ("Leo", "boy"),
    ("Max", "boy"),
    ("Sam", "boy"),
    ("Jack", "boy"),
]
ANIMALS = [
    ("Finn", "fox", "he"),
    ("Ruby", "fox", "she"),
    ("Bruno", "bear", "he"),
    ("Daisy", "rabbit", "she"),
    ("Oscar", "owl", "he"),
    ("Molly", "mouse", "she"),
    ("Toby", "turtle", "he"),
    ("Hazel", "squirrel", "she"),
    ("Duncan", "duck", "he"),
    ("Clara", "cat", "she"),
    ("Rex", "dog", "he"),
    ("Heidi", "hedgehog", "she"),
]
TRAITS = ["little", "kind", "brave", "curious", "cheerful", "shy", "clever", "quiet"]
HOMES = [
    "in a small village",
    "in a cottage by the sea",
    "at the edge of a big forest",
    "near a green hill",
    "in a town by the river",
    "in a red house on a farm",
    "beside a quiet lake",
    "in a warm valley",
]
TREASURES = [
    "red ball",
    "blue kite",
    "silver key",
    "wooden boat",
    "yellow hat",
    "green scarf",
    "little drum",
    "golden bell",
]
FOODS = ["apple pie", "warm bread", "honey cakes", "sweet berries", "fresh cheese", "vegetable soup"]
SEARCHED = [
    "under the bed",
    "behind the door",
    "in the kitchen",
    "in the garden",
    "next to the well",
    "near the old oak tree",
]
FOUND = [
    "under a pile of leaves",
    "behind a big stone",
    "in a hollow tree",
    "between two bushes",
    "inside an old basket",
    "on top of the fence",
]
PLACES = ["the forest", "the river", "the market", "the meadow", "the beach", "the hill", "the garden", "the old mill"]
SKIES = [
    "The sun was shining and the sky was blue.",
    "It was a warm morning and the birds were singing.",
    "It was a cold day and the wind was strong.",
    "Soft snow was falling from the sky.",
    "The air was fresh after the rain.",
    "White clouds were moving slowly over the hills.",
]
SKILLS = [
    ("swim", "the lake", "water"),
    ("climb", "the tall tree", "height"),
    ("skate", "the frozen pond", "ice"),
    ("ride a pony", "the farm", "speed"),
    ("sing", "the village square", "crowd"),
    ("dance", "the big barn", "music"),
]
SEEDS = [
    ("apple tree", "red apples"),
    ("sunflower", "golden seeds"),
    ("pumpkin plant", "orange pumpkins"),
    ("cherry tree", "sweet cherries"),
    ("tomato plant", "ripe tomatoes"),
]
HURT = [("bird", "wing", "fly"), ("rabbit", "leg", "hop"), ("puppy", "paw", "run"), ("kitten", "paw", "jump")]
SIGHTS = [
    ("the sea", "big blue waves"),
    ("the mountain", "white snow on the top"),
    ("the castle", "tall stone towers"),
    ("the lighthouse", "a bright light that turned in the dark"),
    ("the waterfall", "clear water falling over the rocks"),
]


class Hero:
    """Who the story is about, with the words that stand for them."""

    def __init__(self, rng, but=()):
        while True:
            if rng.random() < 0.55:
                self.name, self.kind = rng.choice(PEOPLE)
                pronoun = "she" if self.kind == "girl" else "he"
            else:
                self.name, self.kind, pronoun = rng.choice(ANIMALS)
            if self.name not in but:
                break
        self.they = pronoun
        self.them, self.their = ("her", "her") if pronoun == "she" else ("him", "his")
        self.They = pronoun.capitalize()
        self.trait = rng.choice(TRAITS)


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def opening(rng, h):
    home = rng.choice(HOMES)
    return rng.choice(
        [
            f"Once upon a time, there was {an(h.trait)} {h.kind} named {h.name}. {h.They} lived {home}.",
            f"Once upon a time, {an(h.trait)} {h.kind} named {h.name} lived {home}.",
            f"There once was {an(h.trait)} {h.kind} called {h.name}, who lived {home}.",
            f"Long ago, {an(h.trait)} {h.kind} named {h.name} lived {home}.",
            f"{h.name} was {an(h.trait)} {h.kind}. {h.They} lived {home}.",
            f"The {h.trait} {h.kind} was named {h.name} and lived {home}.",
        ]
    )


def ending(rng, h, f=None):
    both = (
        [
            f"From that day on, {h.name} and {f.name} were the best of friends.",
            f"{h.name} and {f.name} laughed and played until the sun went down.",
            f"Then {h.name} and {f.name} walked home together.",
        ]
        if f
        else []
    )
    return rng.choice(
        both
        + both
        + [
            f"{h.name} was very happy and slept well that night.",
            f"{h.name} smiled and went home.",
            f"It was the best day of the year for {h.name}.",
            f"And {h.name} never forgot that day.",
        ]
    )


def lost(rng, h, f):
    thing = rng.choice(TREASURES)
    one, two = rng.sample(SEARCHED, 2)
    spot = rng.choice(FOUND)
    return [
        rng.choice(
            [f"{h.name} had {an(thing)} and loved it very much.", f"{h.They} loved to play with {h.their} {thing}."]
        ),
        f"One day, the {thing} was gone.",
        rng.choice(
            [
                f"{h.name} looked {one}, but it was not there.",
                f"First {h.they} looked {one}, but the {thing} was not there.",
            ]
        ),
        f"Then {h.they} looked {two}, but it was not there either.",
        rng.choice([f"{h.name} was sad and began to cry.", f"{h.name} sat down and felt very sad."]),
        f'{an(f.kind).capitalize()} named {f.name} came by and asked, "Why are you sad?"',
        rng.choice([f'"I lost my {thing}," said {h.name}.', f'"I cannot find my {thing}," said {h.name}.']),
        rng.choice(
            [f'"Do not worry, I will help you," said {f.name}.', f'"Let us look for it together," said {f.name}.']
        ),
        f"They looked and looked, and at last {f.name} found the {thing} {spot}.",
        f'"Thank you, {f.name}!" said {h.name}.',
    ]


def share(rng, h, f):
    food = rng.choice(FOODS)
    return [
        rng.choice(SKIES),
        f"{h.name} made some {food} and went to {rng.choice(PLACES)}.",
        f"On the way {h.they} met {an(f.kind)} named {f.name}, who was tired and hungry.",
        f'"May I have some of your {food}?" asked {f.name}.',
        rng.choice(
            [
                f'{h.name} thought for a moment and said, "Yes, there is enough for both of us."',
                f'"Of course," said {h.name}, "we can share."',
            ]
        ),
        f"They sat down in the grass and ate the {food} together.",
        rng.choice([f'"You are very kind," said {f.name}.', f'"That was very good," said {f.name}.']),
        f"The next day {f.name} came back and gave {h.name} {an(rng.choice(TREASURES))}.",
    ]


def learn(rng, h, f):
    skill, place, fear = rng.choice(SKILLS)
    return [
        f"{h.name} wanted to learn to {skill}, but {h.they} was afraid of the {fear}.",
        f"Every day {h.they} went to {place} and only watched.",
        f"One morning {an(f.kind)} named {f.name} saw {h.them} there.",
        rng.choice(
            [
                f'"I can show you how to {skill}," said {f.name}.',
                f'"It is not hard to {skill}," said {f.name}, "you only have to try."',
            ]
        ),
        f"The first time, {h.name} made many mistakes.",
        "The second time, it was a little better.",
        rng.choice([f'"Do not give up," said {f.name}.', f'"Try again," said {f.name} with a smile.']),
        f"{h.name} tried again and again, and at last {h.they} could {skill}.",
        f'"Look, I can {skill}!" said {h.name}, and {h.they} was not afraid any more.',
    ]


def storm(rng, h, f):
    food = rng.choice(FOODS)
    return [
        f"One afternoon {h.name} went for a walk to {rng.choice(PLACES)}.",
        "Suddenly the sky became dark and it began to rain.",
        rng.choice(["The wind was strong and the thunder was loud.", "There was a bright flash and a loud noise."]),
        f"{h.name} was wet and cold and did not know where to go.",
        f"Then {h.they} saw a light in a small house and knocked on the door.",
        f'{an(f.kind).capitalize()} named {f.name} opened the door and said, "Come in and sit by the fire."',
        f"They ate {food} and told each other stories until the storm was over.",
        rng.choice(
            [
                "When the rain stopped, there was a rainbow over the hills.",
                "When they looked out of the window, the stars were shining.",
            ]
        ),
        f'"Thank you for your help," said {h.name}.',
    ]


def seed(rng, h, f):
    plant, fruit = rng.choice(SEEDS)
    return [
        f"In the spring, {h.name} found a small seed and planted it in the garden.",
        f"Every morning {h.they} gave it water and every evening {h.they} looked at it.",
        "For a long time nothing happened.",
        rng.choice(
            [
                f'"Nothing will grow there," said {f.name}, the {f.kind} next door.',
                f'"You must be patient," said {f.name}, the {f.kind} next door.',
            ]
        ),
        f"But {h.name} did not stop, and one day there was a small green leaf.",
        f"In the summer the seed was a tall {plant}.",
        f"In the autumn it was full of {fruit}.",
        f"{h.name} gave some of the {fruit} to {f.name}, and they ate them together.",
    ]


def heal(rng, h, f):
    animal, part, act = rng.choice(HURT)
    return [
        rng.choice(SKIES),
        f"{h.name} was walking to {rng.choice(PLACES)} when {h.they} heard a small cry.",
        f"Under a bush there was a little {animal} with a hurt {part}.",
        rng.choice(
            [
                f'"Poor {animal}," said {h.name}, "I will take care of you."',
                f'"Do not be afraid," said {h.name}, "I will help you."',
            ]
        ),
        f"{h.They} carried the {animal} home and made a soft bed for it.",
        f"Every day {h.name} gave it food and water, and {h.their} friend {f.name} helped.",
        f"After two weeks the {part} was well again and the {animal} could {act}.",
        f"{h.name} opened the door and let the {animal} go.",
        f"The next spring the {animal} came back to visit {h.them}.",
    ]


def journey(rng, h, f):
    sight, seen = rng.choice(SIGHTS)
    return [
        f"{h.name} had never seen {sight}, and {h.they} dreamed of it every night.",
        f"One morning {h.they} packed some {rng.choice(FOODS)} and set out with {h.their} friend {f.name}.",
        rng.choice(
            ["They walked through the forest and over a bridge.", "They walked along the river and up a steep hill."]
        ),
        rng.choice(
            ["When it was dark, they slept under the stars.", "At night they made a fire and looked at the moon."]
        ),
        f'"Is it still far?" asked {f.name}.',
        f'"Not very far," said {h.name}.',
        f"On the third day they came to {sight} and saw {seen}.",
        f'"It is even more beautiful than in my dreams," said {h.name}.',
        "They stayed until the evening and then went home.",
    ]


PLOTS = [lost, share, learn, storm, seed, heal, journey]


def sentences(rng):
    """One story as a list of sentences (the opening may hold two)."""
    hero = Hero(rng)
    friend = Hero(rng, but=(hero.name,))
    while friend.kind == hero.kind:
        friend = Hero(rng, but=(hero.name,))
    plot = rng.choice(PLOTS)
    return [opening(rng, hero), *plot(rng, hero, friend), ending(rng, hero, friend)]


def story(rng, whole=0.85):
    """Returns one story; with probability 1 - whole it starts at a later sentence, so that a model can continue from
    any sentence."""
    lines = sentences(rng)
    if rng.random() > whole:
        lines = lines[rng.randrange(1, len(lines) - 2) :]
    return " ".join(lines)


if __name__ == "__main__":
    generator = random.Random(0)
    for _ in range(5):
        print(story(generator), end="\n\n")
