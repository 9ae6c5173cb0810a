"""vocabulary - what the default model can draw: objects, colours and the words captions use for them.

OBJECTS maps a short name of emoji-datasource to the English names captions use; the first is the main one.
A name is here because the picture is visually distinct, is one Unicode code point, and has a plain name.
SPDX-License-Identifier: MIT
"""
import os
import re
import zlib

OBJECT_TABLE = """
dog = dog face | dog
fox_face = fox | fox face
cat = cat face | cat
unicorn_face = unicorn | unicorn face
pig = pig face | pig
panda_face = panda | panda face
frog = frog | frog face
penguin = penguin
whale = whale
tropical_fish = tropical fish
octopus = octopus
butterfly = butterfly
sunflower = sunflower
cactus = cactus
evergreen_tree = pine tree | evergreen tree
mushroom = mushroom
watermelon = slice of watermelon | watermelon
lemon = lemon
banana = banana
pineapple = pineapple
apple = red apple | apple
green_apple = green apple
cherries = pair of cherries | cherries
strawberry = strawberry
carrot = carrot
hamburger = hamburger | burger
pizza = slice of pizza | pizza
icecream = soft ice cream | ice cream cone
doughnut = doughnut | donut
grinning = grinning face | happy face
heart_eyes = smiling face with heart eyes | face with heart eyes
sunglasses = smiling face with sunglasses | cool face
skull = skull
hankey = pile of poo
ghost = ghost
alien = alien
robot_face = robot | robot face
heart = red heart | heart
blue_heart = blue heart
house = house
rocket = rocket
boat = sailboat
car = red car | car
sun_with_face = sun with face | sun
crescent_moon = crescent moon
star = star
rainbow = rainbow
snowman = snowman
fire = fire | flame
umbrella = umbrella
soccer = soccer ball
basketball = basketball
balloon = red balloon | balloon
crown = crown
"""

# For a longer run: DR_OBJECTS=all trains and tests all of them.
MORE_OBJECTS_TABLE = """
lion_face = lion | lion face
cow = cow face | cow
rabbit = rabbit face | bunny
bear = bear | bear face
koala = koala
monkey_face = monkey face | monkey
duck = duck
owl = owl
flamingo = flamingo
turtle = turtle
crab = crab
snail = snail
bee = bee | honeybee
ladybug = ladybug
elephant = elephant
t-rex = t-rex
rose = rose
tulip = tulip
palm_tree = palm tree
four_leaf_clover = four leaf clover | clover
maple_leaf = maple leaf
grapes = bunch of grapes | grapes
tangerine = orange fruit | tangerine
pear = pear
avocado = avocado
eggplant = eggplant
corn = ear of corn | corn
broccoli = broccoli
cheese_wedge = piece of cheese | cheese
fries = french fries | fries
fried_egg = fried egg
cookie = cookie
cupcake = cupcake
coffee = cup of coffee | coffee
beer = mug of beer | beer mug
cry = crying face | sad face
rage = angry red face | enraged face
green_heart = green heart
earth_americas = globe | planet earth
bus = bus
snowflake = snowflake
trophy = trophy
gift = gift | wrapped present
jack_o_lantern = jack-o-lantern | halloween pumpkin
christmas_tree = christmas tree
guitar = guitar
bell = bell
key = key
lock = lock | padlock
tophat = top hat
anchor = anchor
"""


def parse_objects(table):
    rows = (line.split("=") for line in table.strip().splitlines())
    return {key.strip(): [name.strip() for name in names.split("|")] for key, names in rows}


OBJECTS = parse_objects(OBJECT_TABLE)
if os.environ.get("DR_OBJECTS") == "all":
    OBJECTS.update(parse_objects(MORE_OBJECTS_TABLE))

COLORS = {
    "white": (255, 255, 255), "black": (20, 20, 20), "gray": (135, 135, 135), "red": (205, 35, 40),
    "orange": (245, 140, 30), "yellow": (250, 220, 60), "green": (60, 160, 70),
    "teal": (20, 140, 140), "blue": (35, 85, 200), "purple": (125, 55, 165),
    "pink": (245, 160, 195), "brown": (120, 75, 45), "light blue": (150, 205, 245),
}

PLACES = ["top left", "top right", "bottom left", "bottom right",
          "left", "right", "top", "bottom", "center"]

MASS_NOUNS = re.compile(r"^(fries|french fries|grapes|cherries|corn|broccoli|coffee|fire|cheese|pizza|"
                        r"planet earth)$")


def with_article(noun):
    if MASS_NOUNS.match(noun):
        return noun
    vowel = noun[0] in "aeiou" and not noun.startswith("uni")
    return ("an " if vowel else "a ") + noun


def plural(noun):
    return noun + ("" if noun[-1] in "sy" else "s")


def is_held_out(*words):
    """True for the combinations no training picture shows: about one in twelve.

    Called with (object, colour), (object, "small", place) and (left object, "and", right object).
    A checksum, so that the rule needs no list and never changes."""
    return zlib.crc32("/".join(words).encode()) % 12 == 0
