"""What the model can do by rule: arithmetic with worked steps, units, counting, spelling, sorting, small talk.

Every function takes a random.Random and returns a Turn or a list of Turns (a short dialogue). Numbers and words whose
hash falls into the held-out share are never drawn here unless held=True, which heldout.py uses to ask exactly those.
"""
import zlib
from dataclasses import dataclass

from words import COMMON, NAMES, PROJECT

HELD_SHARE = 20  # one in twenty combinations is kept for the evaluation


@dataclass
class Turn:
    q: str
    a: str
    kind: str
    accept: str = ""     # regular expression of a right answer, for the evaluation
    noise: bool = True   # casing and typos allowed
    typos: bool = True


def held_out(*key):
    return zlib.crc32(repr(key).encode()) % HELD_SHARE == 0


def draw(rng, held, make, *tag):
    """Draws make() until its combination is on the wanted side of the split."""
    while True:
        value = make()
        if held_out(*tag, *value) == held:
            return value


# ---- arithmetic ------------------------------------------------------------------------------------------------------

def product(a, b):
    """a * b as a chain of equalities: the smaller number of digits on the right, taken apart by its digits."""
    head = f"{a} * {b}"
    if len(str(a)) < len(str(b)):
        a, b = b, a
        swap = f" = {a} * {b}"
    else:
        swap = ""
    parts = [int(d) * 10 ** i for i, d in enumerate(reversed(str(b))) if d != "0"][::-1]
    if len(parts) <= 1:
        return f"{head} = {a * b}"
    out = head + swap + " = " + " + ".join(f"{a} * {p}" for p in parts)
    terms = [a * p for p in parts]
    while len(terms) > 1:
        out += " = " + " + ".join(map(str, terms))
        terms = [terms[0] + terms[1]] + terms[2:]
    return f"{out} = {terms[0]}"


def quotient(a, b):
    """Long division in words: subtract b times each digit of the quotient, the highest first."""
    q, r = divmod(a, b)
    end = f"{a} / {b} = {q}" + (f" remainder {r}" if r else "")
    if len(str(q)) == 1:
        steps = [f"{b} * {q} = {b * q}, {a} - {b * q} = {r}"] if q and r else []
    else:
        steps, rest = [], a
        for i, d in enumerate(str(q)):
            p = int(d) * 10 ** (len(str(q)) - 1 - i)
            if p:
                steps.append(f"{b} * {p} = {b * p}, {rest} - {b * p} = {rest - b * p}")
                rest -= b * p
    return f"{'; '.join(steps)}. So {end}." if steps else f"{end}."


def worked(op, a, b):
    if op == "+":
        return f"{a} + {b} = {a + b}."
    if op == "-":
        return f"{a} - {b} = {a - b}."
    if op == "*":
        return product(a, b) + "."
    return quotient(a, b) if b else "Division by zero is undefined."


def value(op, a, b):
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a // b}[op]()


WAYS = {  # training phrases of each operation; {a} and {b} are the operands
    "+": ["{a} + {b}", "{a}+{b}", "{a} plus {b}", "add {a} and {b}", "the sum of {a} and {b}", "{a} added to {b}", "add {a} to {b}", "{a} and {b} together", "{a} + {b} =", "sum up {a} and {b}", "the total when adding {a} and {b}", "{a} increased by {b}", "increase {a} by {b}", "{a} and {b} summed", "put {a} and {b} together", "{b} more than {a}", "{a} combined with {b}", "{a} and {b} in total", "{a} and {b} altogether", "the sum total of {a} and {b}", "tot up {a} and {b}", "{a} with {b} on top", "{a} and then {b} more", "{a} raised by {b}", "total {a} and {b}"],
    "-": ["{a} - {b}", "{a}-{b}", "{a} minus {b}", "subtract {b} from {a}", "the difference of {a} and {b}", "{a} less {b}", "take {b} from {a}", "{a} - {b} =", "{b} subtracted from {a}", "{a} decreased by {b}", "reduce {a} by {b}", "take {b} away from {a}", "{a} without {b}", "remove {b} from {a}", "{b} less than {a}", "deduct {b} from {a}", "{a} lowered by {b}", "{a} cut by {b}", "{a} diminished by {b}", "{b} off {a}", "{b} taken off {a}", "{a} shortened by {b}", "{a} with {b} gone", "{a} after losing {b}", "lower {a} by {b}"],
    "*": ["{a} * {b}", "{a}*{b}", "{a} times {b}", "multiply {a} by {b}", "the product of {a} and {b}", "{a} x {b}", "{a} multiplied by {b}", "multiply {a} and {b}", "{a} * {b} =", "multiply {a} with {b}", "{a} of {b} each", "{a} taken {b} times", "{b} lots of {a}", "{a} multiplied {b} times over", "{a} by {b}", "the product from {a} and {b}", "{a} repeated {b} times"],
    "/": ["{a} / {b}", "{a}/{b}", "{a} divided by {b}", "divide {a} by {b}", "{a} over {b}", "{b} into {a}", "{a} / {b} =", "the quotient of {a} and {b}", "{a} : {b}", "split {a} by {b}", "split {a} into {b} parts", "{a} shared by {b}", "how often {b} goes into {a}", "{a} cut into {b} parts", "{a} shared among {b}", "{a} distributed over {b}", "{a} in {b} equal parts", "how many times {b} fits into {a}", "divide up {a} by {b}"],
}
ASKS = ["What is {x}?", "What's {x}?", "{x}", "{x}?", "Calculate {x}", "Compute {x}", "How much is {x}?", "Tell me {x}", "Can you calculate {x}?",
        "Please compute {x}", "I need {x}", "Work out {x}", "Solve {x}", "What do I get for {x}?", "How many is {x}?", "Give me {x}", "result of {x}",
        "What is the result of {x}?", "Do you know {x}?", "Find {x}", "evaluate {x}", "And {x}?", "what does {x} equal?", "What about {x}?",
        "What would be {x}?", "Could you work out {x}?", "I'd like to have {x}", "Would you compute {x}?", "{x} equals what?", "{x} gives what?", "what would {x} give?", "Figure out {x}", "calculate {x} for me", "how much would {x} make?", "Let me know {x}",
        "I want to know {x}", "so {x} is?", "{x} is what?", "I wonder what {x} is", "How big is {x}?", "What number is {x}?", "{x} ?", "can you tell me {x}", "{x} comes to what?", "{x}: how much?", "what do you get for {x}?", "{x} is?", "{x} amounts to what?", "How much does {x} give?", "so how much is {x}", "{x} yields what?", "What might {x} be?", "{x} is which number?", "{x} has what result?", "Do tell me {x}", "quickly, {x}", "{x} would give what?"]
VERBS = ("lower", "total", "tot", "add", "subtract", "multiply", "divide", "take", "sum", "increase", "put", "reduce", "remove", "deduct", "split")  # imperative: takes other carriers
DO_ASKS = ["{x}", "Please {x}", "Can you {x}?", "Could you {x}?", "I want to {x}", "{x}, please", "now {x}", "Now {x}", "Would you {x}?", "Let us {x}", "Kindly {x}", "I'd like you to {x}", "What do I get when I {x}?", "What is it if I {x}?", "and {x}"]

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + ("-" + ONES[n % 10] if n % 10 else "")
    return ONES[n // 100] + " hundred" + (" and " + in_words(n % 100) if n % 100 else "")


def number(rng):
    """A number of one to three digits, larger ones more often."""
    r = rng.random()
    return rng.randrange(10) if r < 0.15 else rng.randrange(10, 100) if r < 0.45 else rng.randrange(100, 1000)


def operands(rng, op, held=False):
    def make():
        a, b = number(rng), number(rng)
        if op == "-" and a < b and rng.random() < 0.8:
            a, b = b, a
        if op == "/":
            b = max(b, 1)
            if a < b and rng.random() < 0.9:
                a, b = b, a
            a, b = max(a, 1), max(b, 1)
            if rng.random() < 0.4:
                a = b * max(1, a // b)
        return op, a, b
    return draw(rng, held, make)


def final(n):
    """Matches an answer whose last number is n."""
    return rf"(?s)(^|[^0-9.-]){'' if n >= 0 else '-'}{abs(n)}[^0-9]*$"


def accept_result(op, a, b):
    if op == "/" and b and a % b:
        return rf"{a // b} remainder {a % b}[^0-9]*$"
    return final(value(op, a, b))


def phrase(rng, x):
    asks = DO_ASKS if x.split()[0] in VERBS else ASKS
    return rng.choice(asks).format(x=x)


def arithmetic(rng, held=False, ways=WAYS, asks=None):
    op = rng.choices("+-*/", (3, 3, 4, 3))[0]
    _, a, b = operands(rng, op, held)
    x, y = str(a), str(b)
    if rng.random() < 0.06:
        x, y = in_words(a), in_words(b)
    way = rng.choice(ways[op]).format(a=x, b=y)
    q = rng.choice(asks).format(x=way) if asks else phrase(rng, way)
    return Turn(q, worked(op, a, b), "math", accept_result(op, a, b), typos=False)


def arithmetic_follow(rng):
    """A calculation that goes on with the last result."""
    op = rng.choice("+-*/")
    _, a, b = operands(rng, op)
    turns = [Turn(phrase(rng, rng.choice(WAYS[op]).format(a=a, b=b)), worked(op, a, b), "math", typos=False)]
    r = value(op, a, b)
    for _ in range(rng.choice((1, 1, 2, 3))):
        op = rng.choice("+-*/")
        b = rng.randrange(1, 10) if rng.random() < 0.5 else rng.randrange(1, 1000)
        if op == "/" and (r % b if b else 1):
            op = "+"
        if not 0 <= r <= 999 or held_out(op, r, b):
            break
        word = {"+": ["plus {b}", "add {b}", "and {b} more", "+ {b}"], "-": ["minus {b}", "subtract {b}", "less {b}", "- {b}"],
                "*": ["times {b}", "multiply it by {b}", "* {b}", "multiply that by {b}"], "/": ["divided by {b}", "divide it by {b}", "/ {b}", "divide that by {b}"]}[op]
        q = rng.choice(["And {x}?", "{x}", "Now {x}", "{x}?", "And then {x}?", "What is that {x}?" if op in "+-*/" else "{x}"]).format(x=rng.choice(word).format(b=b))
        if q.startswith("What is that") and any(v in q for v in ("add ", "subtract", "multiply", "divide ")):
            q = q.replace("What is that ", "Now ")
        turns.append(Turn(q, worked(op, r, b), "math", typos=False))
        r = value(op, r, b)
    return turns


def arithmetic_ellipsis(rng):
    """The same operation with other numbers: 'and 12 and 7?'"""
    op = rng.choice("+-*/")
    turns = []
    for i in range(rng.choice((2, 2, 3))):
        _, a, b = operands(rng, op)
        q = phrase(rng, rng.choice(WAYS[op]).format(a=a, b=b)) if i == 0 else rng.choice(["And {a} and {b}?", "And with {a} and {b}?", "Now {a} and {b}", "The same for {a} and {b}"]).format(a=a, b=b)
        turns.append(Turn(q, worked(op, a, b), "math", typos=False))
    return turns


def special_arithmetic(rng):
    r = rng.random()
    n = rng.randrange(1, 1000)
    if r < 0.2:
        n = rng.randrange(2, 100)
        x = in_words(n) if rng.random() < 0.2 else n
        return Turn(phrase(rng, rng.choice(["{n} squared", "the square of {n}", "{n}^2", "{n} to the power of 2", "{n} ^ 2", "{n}**2"]).format(n=x)), worked("*", n, n), "math", final(n * n), typos=False)
    if r < 0.4:
        way = rng.choice(["twice {n}", "double {n}", "the double of {n}", "two times {n}"]).format(n=n)
        return Turn(phrase(rng, way), worked("*", n, 2), "math", final(2 * n), typos=False)
    if r < 0.55:
        n = rng.randrange(1, 100) if rng.random() < 0.5 else n
        x = in_words(n) if rng.random() < 0.2 else n
        return Turn(phrase(rng, rng.choice(["half of {n}", "the half of {n}", "a half of {n}", "{n} halved", "half {n}", "one half of {n}"]).format(n=x)), worked("/", n, 2), "math", accept_result("/", n, 2), typos=False)
    if r < 0.7:
        a, b, c = (number(rng) for _ in range(3))
        return Turn(phrase(rng, rng.choice(["{a} + {b} + {c}", "{a} plus {b} plus {c}", "the sum of {a}, {b} and {c}", "{a}+{b}+{c}"]).format(a=a, b=b, c=c)),
                    f"{a} + {b} = {a + b}, {a + b} + {c} = {a + b + c}.", "math", final(a + b + c), typos=False)
    if r < 0.85:
        a, b = rng.randrange(1000), rng.randrange(1, 1000)
        q = rng.choice(["{a} mod {b}", "{a} modulo {b}", "the remainder of {a} divided by {b}", "{a} % {b}"]).format(a=a, b=b)
        return Turn(phrase(rng, q), worked("/", a, b), "math", typos=False)
    if r < 0.93:
        a = rng.randrange(1000)
        return Turn(phrase(rng, rng.choice(WAYS["/"]).format(a=a, b=0)), worked("/", a, 0), "math", "undefined", typos=False)
    return beyond(rng)


BEYOND = "I don't know that: I calculate with two whole numbers of at most three digits."

WORDS_OF = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}

HARD = [  # sums that are not done; {d} is one digit, {s} a symbol, {w} its word
    "{a} {s} {b} {t} {c}", "{a}{s}{b}{t}{c}", "({a} {s} {b}) {t} {c}", "{a} {s} ({b} {t} {c})", "{a}{s}({b}{t}{c})", "{a} {w} {b} {x} {c}", "{a} {s} {b} {t} {c} {s} {e}", "{a} + {b} + {c} + {e}", "{a} times the sum of {b} and {c}", "the sum of {a} and {b} times {c}",
    "{a} * {b} * {c}", "{a} times {b} times {c}", "{a} - {b} - {c}", "{a} minus {b} minus {c}", "{a} / {b} / {c}", "{a} plus {b} divided by {c}", "{a} - ({b})", "{d} + {d2} * {d3}", "{d} * {d2} + {d3}", "({d} + {d2}) * {d3}", "{d}{s}{d2}{t}{d3}", "{d} {w} {d2} {x} {d3}",
    "{a}^{k}", "{a} ^ {k}", "{a}**{k}", "{d}^{k}", "{a} to the power of {k}", "{d} to the {k}th power", "{a} to the {k}th", "{a} raised to {k}", "{a} cubed", "the cube of {a}", "the {k}th power of {d}", "10^{k}", "2^{k}", "two to the power of {k}",
    "sqrt({a})", "sqrt {a}", "the square root of {a}", "the cube root of {a}", "the root of {a}", "{a}!", "{d}!", "the factorial of {a}", "{d} factorial", "log({a})", "log {a}", "ln({a})", "the logarithm of {a}", "sin({a})", "cos {a}", "the sine of {a} degrees", "tan({a})", "exp({d})", "e^{d}", "|{a}|",
    "{a}.{d} + {b}", "{a}.{d} {s} {b}.{d2}", "{a}.{b} * {c}", "{d}.{d2} {w} {d3}", "{a} {s} {b}.{d}", ".{d} {s} .{d2}", "0.{a} {s} 0.{b}", "{d}.{d2}{s}{d3}.{e}", "{a},{d} {s} {b}", "{a} / {b} as a decimal", "{a} / {d} exactly", "{a} / {d} exact", "{a} divided by {d} precisely", "exactly {a} / {d}", "the exact value of {a} / {d}", "{a} / {d} to two places", "{a} / {d} without a remainder", "{a} / {b} as a fraction", "{a} / {d} in decimals", "{a} over {d} as a number with decimals", "{d}.{d2} * {d3}", "{d}.{d2} x {d3}", "{a} divided by {b} with decimals", "{a}.{d} rounded", "{a}.{b}", "{d}.{d2} times {d3}.{e}",
    "{a}% of {b}", "{a} percent of {b}", "{a} % of {b}", "{a} plus {d} percent", "{b} with {a}% off", "{a} as a percentage of {b}", "{in_a} percent of {b}", "{a}/{b} + {c}/{e}", "1/{d} + 1/{d2}", "{d}/{d2} of {a}", "a third of {a}", "a quarter of {a}", "two thirds of {a}", "1/{d} of {a}", "half and a third", "one half plus one {k}th",
    "-{a} {s} {b}", "-{a} {s} -{b}", "{a} {s} -{b}", "-{d} {s} {d2}", "minus {a} plus {b}", "negative {a} times {b}", "-{a}", "- {a} - {b}", "the absolute value of -{a}", "{a} + + {b}", "{a} {s}", "{a} {w}", "{a} {s} ", "{d} {s}", "{d} {s} ", "{a}{s}", "{d} {w}", "{a} {s} ...", "{a} {s} what", "{a} {s} ?", "{s} {a}", "{s} {s} {a}", "{a} {s} {t} {b}", "{a} =", "= {a}", "{a}", "{a} {b}", "{a} {b} {c}", "{a}, {b}, {c}", "{a},{b}00", "{big}", "{big} {s} {b}", "{a} {s} {big}", "{big} {w} {a}", "{big} {s} {big2}",
    "x + {a} = {b}", "x - {a} = {b}", "{d}x = {a}", "{d}x + {a} = {b}", "x if x + {a} = {b}", "x if {d}x = {a}", "x^2 = {a}", "{d}x + {d2}x", "{d}y - {a}", "x in {a} - x = {b}", "the derivative of x^{d}", "the integral of {d}x", "a + b", "x * y", "{a} + x", "x squared", "f({a})",
    "the average of {a} and {b}", "the average of {a}, {b} and {c}", "the mean of {a}, {b}, {c}", "the median of {a}, {b} and {c}", "the largest of {a}, {b} and {c}", "the smallest of {a}, {b}, {c}", "the gcd of {a} and {b}", "the lcm of {a} and {b}", "the divisors of {a}", "the factors of {a}", "the prime factors of {a}", "the next prime after {a}",
    "{a} in binary", "{a} in hex", "{a} in hexadecimal", "{a} as a Roman numeral", "0x{a}", "0b101 + 1", "{a} in base {d}", "{a} in octal", "{a} dollars in euros", "the number of digits of {big}", "fibonacci({d})", "the {a}th prime", "the {k}th Fibonacci number", "the digits of pi", "pi times {a}", "pi + {d}", "infinity {s} {a}", "zero to the power of zero", "a million {s} {a}", "{in_a} thousand {w} {b}",
    "the mean of {a} and {b}", "mean of {a} and {b}", "average of {a} {b} {c}", "the middle of {a} and {b}", "halfway between {a} and {b}", "the ratio of {a} to {b}", "the greatest common divisor of {a} and {b}", "the least common multiple of {a} and {b}", "hcf of {a} and {b}", "lcm of {a}, {b}", "gcd({a}, {b})", "max({a}, {b}, {c})",
    "the distance from {a} to {b}", "the range of {a}, {b}, {c}", "the variance of {a} and {b}", "the nth root of {a}", "the {k}th root of {a}", "the reciprocal of {a}", "the inverse of {a}", "the opposite of {a}", "one over {a}", "a dozen times {a}", "a hundred {w} {a}", "a thousand {w} {a}", "a billion {w} {b}", "half a million", "a tenth of {a}", "ten percent of {a}", "{a} per cent of {b}", "{a} pct of {b}", "a fifth of {a}",
    "{a} dozen {w} {b}", "{a} {s} one half", "{a} and a half", "{a} and a half {w} {b}", "{a} {w} {b}.{d}", "three quarters of {a}", "the digits of {a}", "the sum of the digits of {a}", "{a} backwards {w} {b}", "{a} in words", "the zeros of {big}", "the number after {a}", "the number before {a}", "{a} rounded to tens", "{a} mod {b} {s} {c}",
    "{a}% off {b}", "{a} percent off {b}", "{b} minus {a}%", "{b} less {a} percent", "{d} {d2} {d3}", "{d} {d2}", "{d} {d2} {d3} {d}", "{bignum}", "a {bignum}", "{in_d} {bignum}", "{in_d}", "{in_d} {in_d2}",
    "{d} squared {w} {d2}", "{a} squared {w} {b}", "{d} squared {s} {d2}", "{d}^2 {s} {d2}", "the square of {d} {w} {d2}", "{d} cubed {w} {d2}", "{d2} {w} {d} squared", "twice {a} {w} {b}", "double {d} {w} {d2}", "half of {a} {w} {b}", "half of {d} {w} {d2}", "{d} halved {w} {d2}", "{in_d} squared {w} {in_d2}", "{in_d} cubed {w} {in_d2}",
    "twice {in_d} {w} {in_d2}", "half of {in_d} {w} {in_d2}", "{in_d} {w} {in_d2} {x} {in_d3}", "{in_d} times {in_d2} {w} {in_d3}", "the square of {in_d} {w} {in_d2}", "{d} squared squared", "{d} squared {w} {d2} squared", "{d}^2 {s} {d2}^2", "{a} {w} half of {b}", "{a} {w} {in_d} {x} {c}", "{in_d} {s} {d2} {t} {in_d3}",
    "{a} {s} {b} in words", "{a} {w} what is {b}", "{d} {s} ? = {a}", "{a} kg plus {b} g", "{a} days after {b}", "the sum of 1 to {a}", "the sum of all numbers up to {a}", "the product of {a}, {b} and {c}", "{a} choose {d}", "{a} x {b} x {c}",
]
HARD_ASKS = [  # whole questions
    "Is {a} prime?", "Is {a} a prime number?", "Is {a} a perfect square?", "Is {a} divisible by {d}?", "is {a} + {b} = {c}?", "Is {a} {s} {b} equal to {c}?", "{a} {s} {b} = {c}?", "does {a} {w} {b} equal {c}?", "{a}{s}{b}={c}, right?", "Is {a}.{d} bigger than {b}.{d2}?", "Which is larger, {a}.{d} or {b}.{d2}?", "{a}.{d} or {b}.{d2}?", "{a}.{d} or {a}.{d2}{d3}",
    "is {a}.{d} > {a}.{d2}{d3}", "{d}.{d2} vs {d}.{d3}{e}", "which is bigger {d}.{d2} or {d}.{d3}{e}", "compare {a}.{d} and {b}.{d2}", "Which is larger, {a}/{b} or {c}/{e}?", "Solve {d}x = {a}", "solve x + {a} = {b}", "solve for x: {d}x + {a} = {b}", "Find x: x - {a} = {b}", "Round {a}.{d}", "round {a} to the nearest ten", "Factor {a}", "integrate x^{d}",
    "differentiate {d}x^{d2}", "Convert {a} to binary", "convert {a} to hex", "Write {a} in Roman numerals", "What comes after {a}, {b}, {c}?", "continue: {d} {d2} {d3}", "guess a number", "a random number up to {a}", "think of a number below {a}", "choose a number from {d} to {a}", "roll a die", "flip a coin", "throw two dice", "What is the biggest prime?", "How many primes are below {a}?", "How many numbers are there?",
    "How many digits has {big}?", "{name} has {a} {noun}s, gets {b} more and loses {c}. How many?", "{name} buys {a} {noun}s for {d} dollars each and pays with {big}. How much change?", "I had {a} {noun}s, gave away {b} and ate {c}, how many left?", "A train goes {a} km in {d} hours. How fast is it?", "If {d} {noun}s cost {a} dollars, what do {d2} cost?", "{name} is {a} and {name2} is twice as old. How old are both together?",
    "How many zeros has a {bignum}?", "how many zeroes are in a {bignum}", "How many {noun}s make a {bignum}?", "What is a {bignum}?", "How big is a {bignum}?", "what comes after a {bignum}", "How many digits does a {bignum} have?", "write a {bignum}", "is a {bignum} more than {big}", "Which is more, a {bignum} or a {bignum2}?", "Count to a {bignum}", "what is a {bignum} {w} {a}",
    "{name} had {a} {noun}s, found {b} and sold {c}. How many?", "I have {a} {noun}s, buy {b} more and eat {c}. How many now?", "{name} has {a} {noun}s, loses {b}, finds {c}. What is left?", "{name} buys {a} {noun}s, gets {b} more and gives away {c}, how many?", "There are {a} {noun}s, {b} come and {c} go. How many?", "We had {a} {noun}s, then {b} more, then {c} less", "{a} {noun}s and {b} {noun2}s, {c} run away. How many?", "{name} eats {d} of {a} {noun}s and {name2} {d2}. How many are left?",
    "{name} has {a} {noun}s and twice as many {noun2}s. How many?", "{name} has {d} times as many {noun}s as {name2}, who has {a}. How many together?", "From {a} {noun}s I took {b}, then {c}. What remains?", "{name} pays {a} for {d} {noun}s and {b} for a {noun2}. How much?", "half of my {a} {noun}s are {adj}, {b} are lost. How many?", "how many {noun}s in {a} boxes of {b} if {c} are lost?",
    "What time is it {d} hours after {d2} pm?", "How many days until {month} {d}?", "{a} km in miles", "{a} kg in pounds", "How many pounds are {a} kg?", "{a} miles to km", "{a}.{d} km in m", "convert {a}.{d} kg to g", "{a} inches in cm", "{a} cups in ml", "{a} hours in seconds", "{a} km in cm", "{a} weeks in hours", "{a} m2 in acres", "{a} kelvin in celsius", "{a} kg in liters", "{a} liters in km", "{a} euros in dollars", "what is {d} feet {d2} in cm",
]


def beyond(rng):
    """A sum that is not done: more than one operation, powers, roots, decimals, percent, signs, more than three digits."""
    from unknown import Filler
    op, other = rng.choice("+-*/"), rng.choice("+-*/")
    if op == "+" and other == "+":  # three summands are done
        other = "*"
    f = Filler(rng)
    f.update({"a": number(rng), "b": number(rng), "c": number(rng), "e": rng.randrange(1, 100), "d": rng.randrange(2, 10), "d2": rng.randrange(1, 10), "d3": rng.randrange(1, 10), "k": rng.randrange(3, 13),
              "s": op, "t": other, "w": WORDS_OF[op], "x": WORDS_OF[other], "big": rng.randrange(1000, 10 ** rng.randrange(4, 9)), "big2": rng.randrange(1000, 10 ** rng.randrange(4, 9)), "in_a": in_words(rng.randrange(2, 100))})
    f.update({"in_" + k: in_words(f[k]) for k in ("d", "d2", "d3")})
    f["bignum"], f["bignum2"] = rng.sample(("hundred", "thousand", "million", "billion", "trillion", "googol", "dozen dozens"), 2)
    if rng.random() < 0.12:  # numbers as words
        f.update({k: in_words(f[k]) for k in ("a", "b", "c", "e", "d", "d2")})
    if rng.random() < 0.32:
        return Turn(rng.choice(HARD_ASKS).format_map(f), BEYOND, "math", BEYOND_ACCEPT, typos=False)
    way = rng.choice(HARD).format_map(f)
    return Turn(way if rng.random() < 0.35 else phrase(rng, way), BEYOND, "math", BEYOND_ACCEPT, typos=False)


BEYOND_ACCEPT = "^I don.t know that"


def story(rng, held=False):
    """A sum in the clothes of a story."""
    name, thing = rng.choice(NAMES), rng.choice(["apples", "books", "coins", "cookies", "pens", "eggs", "cards", "balls", "stamps", "tokens", "files", "keys", "shells", "stones", "tickets"])
    op = rng.choice("+-*/")
    if op == "/":
        _, b, c = draw(rng, held, lambda: ("story*", rng.randrange(2, 20), rng.randrange(2, 40)))
        a = b * c
        who = f"{name} shares {a} {thing} among {b} friends."
        ask = rng.choice([f"How many {thing} does each get?", "How many does each friend get?"])
    else:
        top = 20 if op == "*" else 100
        _, a, b = draw(rng, held, lambda: ("story" + op, rng.randrange(2, top), rng.randrange(2, top)))
        if op == "-" and a < b:
            a, b = b, a
        i = rng.random() < 0.4
        who = {"+": f"{name} has {a} {thing} and gets {b} more.", "-": f"{name} has {a} {thing} and gives away {b}.", "*": f"{name} has {a} boxes with {b} {thing} each."}[op]
        if i:
            who = {"+": f"I have {a} {thing} and buy {b} more.", "-": f"I had {a} {thing} and lost {b}.", "*": f"There are {a} bags with {b} {thing} each."}[op]
        ask = rng.choice([f"How many {thing} is that?", f"How many {thing} are there now?", "How many in all?", "How many now?", f"How many {thing} in total?"])
    return Turn(f"{who} {ask}", worked(op, a, b), "math", final(value(op, a, b)), typos=False)


def compare(rng, held=False):
    _, a, b = draw(rng, held, lambda: ("cmp", number(rng), number(rng)))
    if a == b:
        b += 1
    if rng.random() < 0.5:
        way = rng.choice(["Which is larger, {a} or {b}?", "Which is bigger, {a} or {b}?", "Is {a} or {b} larger?", "Which number is greater, {a} or {b}?", "the larger of {a} and {b}", "What is the maximum of {a} and {b}?", "larger: {a} or {b}?"])
        return Turn(way.format(a=a, b=b), f"{max(a, b)} is larger than {min(a, b)}.", "math", rf"^{max(a, b)} is (larger|greater|bigger)", typos=False)
    if rng.random() < 0.6:
        way = rng.choice(["Which is smaller, {a} or {b}?", "Is {a} or {b} smaller?", "Which number is less, {a} or {b}?", "the smaller of {a} and {b}", "What is the minimum of {a} and {b}?", "smaller: {a} or {b}?"])
        return Turn(way.format(a=a, b=b), f"{min(a, b)} is smaller than {max(a, b)}.", "math", rf"^{min(a, b)} is (smaller|less)", typos=False)
    n = a
    way = rng.choice(["Is {n} even?", "Is {n} odd?", "Is {n} even or odd?", "Is {n} an even number?", "Is {n} an odd number?", "{n}: even or odd?"])
    return Turn(way.format(n=n), f"{n} is {'odd' if n % 2 else 'even'}.", "math", rf"{n} is {'odd' if n % 2 else 'even'}", typos=False)


def near_numbers(rng):
    """Two numbers that are easily taken for each other: neighbours, swapped digits, of other lengths, up to five digits."""
    a = rng.choice((number(rng), rng.randrange(1000, 10000), 10 ** rng.randrange(1, 5) * rng.randrange(1, 10), rng.randrange(10000, 100000)))
    ways = [a + rng.choice((-2, -1, 1, 1, 2)), int(str(a)[::-1]), a * 10, a // 10, a + rng.choice((-100, -10, 10, 100)), number(rng)]
    b = abs(rng.choice(ways))
    return (a, b) if rng.random() < 0.5 else (b, a)


def is_larger(rng, held=False):
    """Yes or no."""
    _, a, b = draw(rng, held, lambda: ("larger", *(near_numbers(rng) if rng.random() < 0.6 else (number(rng), number(rng)))))
    more = rng.random() < 0.6
    way = rng.choice(["Is {a} {w} than {b}?", "is {a} {w} than {b}", "{a} {s} {b}?", "{a} {s} {b}", "{a}{s}{b}?", "Is {a} {s} {b}?", "is it true that {a} is {w} than {b}?", "{a} is {w} than {b}, right?", "Would {a} be {w} than {b}?", "tell me if {a} is {w} than {b}",
                      "{a} {w} than {b}?", "{a} {w} than {b}", "is {a} really {w} than {b}", "{a} is {w} than {b}?", "isn't {a} {w} than {b}?", "isnt {a} {w} than {b}", "so {a} is {w} than {b}?", "{a} {w} {b}?", "is {a} {w} {b}"])
    q = way.format(a=a, b=b, s="><"[not more], w=rng.choice(["bigger", "larger", "greater", "more", "higher"] if more else ["smaller", "less", "lower", "fewer"]))
    yes = a > b if more else a < b
    relation = "equal to" if a == b else "larger than" if a > b else "smaller than"
    return Turn(q, f"{'Yes' if yes else 'No'}, {a} is {relation} {b}.", "math", rf"^{'Yes' if yes else 'No'}\b.*{a} is {relation}", typos=False)


# ---- units -----------------------------------------------------------------------------------------------------------

UNITS = [  # larger unit, smaller unit, factor; names: (short, singular, plural)
    (("km", "kilometer", "kilometers"), ("m", "meter", "meters"), 1000),
    (("m", "meter", "meters"), ("cm", "centimeter", "centimeters"), 100),
    (("cm", "centimeter", "centimeters"), ("mm", "millimeter", "millimeters"), 10),
    (("m", "meter", "meters"), ("mm", "millimeter", "millimeters"), 1000),
    (("kg", "kilogram", "kilograms"), ("g", "gram", "grams"), 1000),
    (("t", "ton", "tons"), ("kg", "kilogram", "kilograms"), 1000),
    (("g", "gram", "grams"), ("mg", "milligram", "milligrams"), 1000),
    (("l", "liter", "liters"), ("ml", "milliliter", "milliliters"), 1000),
    (("hours", "hour", "hours"), ("minutes", "minute", "minutes"), 60),
    (("minutes", "minute", "minutes"), ("seconds", "second", "seconds"), 60),
    (("days", "day", "days"), ("hours", "hour", "hours"), 24),
    (("weeks", "week", "weeks"), ("days", "day", "days"), 7),
    (("years", "year", "years"), ("months", "month", "months"), 12),
    (("seconds", "second", "seconds"), ("ms", "millisecond", "milliseconds"), 1000),
    (("ms", "millisecond", "milliseconds"), ("us", "microsecond", "microseconds"), 1000),
    (("feet", "foot", "feet"), ("inches", "inch", "inches"), 12),
    (("yards", "yard", "yards"), ("feet", "foot", "feet"), 3),
    (("dozen", "dozen", "dozens"), ("pieces", "piece", "pieces"), 12),
    (("bytes", "byte", "bytes"), ("bits", "bit", "bits"), 8),
    (("KiB", "KiB", "KiB"), ("bytes", "byte", "bytes"), 1024),
    (("MiB", "MiB", "MiB"), ("KiB", "KiB", "KiB"), 1024),
    (("GiB", "GiB", "GiB"), ("MiB", "MiB", "MiB"), 1024),
    (("TiB", "TiB", "TiB"), ("GiB", "GiB", "GiB"), 1024),
    (("GB", "gigabyte", "gigabytes"), ("MB", "megabyte", "megabytes"), 1000),
    (("MB", "megabyte", "megabytes"), ("KB", "kilobyte", "kilobytes"), 1000),
]
DOWN = ["How many {s} are in {n} {l}?", "How many {s} is {n} {l}?", "Convert {n} {l} to {s}", "{n} {l} in {s}", "{n} {l} to {s}", "What is {n} {l} in {s}?", "How many {s} are {n} {l}?",
        "{n} {l} = ? {s}", "turn {n} {l} into {s}", "How many {s} do {n} {l} have?", "express {n} {l} in {s}", "How much is {n} {l} in {s}?", "how many {s} in {n} {l}", "convert {n} {l} into {s}", "change {n} {l} to {s}", "What would {n} {l} be as {s}?", "I have {n} {l}. What is that in {s}?", "{n} {l} equals how many {s}?", "{n} {l} make how many {s}?", "How many {s} would I have with {n} {l}?", "Give me {n} {l} in {s}", "{n} {l} as {s}", "how many {s} fit into {n} {l}"]


def unit(rng, held=False, ways=DOWN):
    i = rng.randrange(len(UNITS))
    big, small, f = UNITS[i]
    _, _, n = draw(rng, held, lambda: ("unit", i, rng.randrange(1, 100) if f != 1024 or rng.random() < 0.3 else rng.randrange(1, 33)))
    way = rng.choice(ways)
    # names that a unit has: the short one, or the full word
    L, S = rng.choice((big[0], big[1] if n == 1 else big[2])), rng.choice((small[0], small[2]))
    lname, sname = (big[1] if n == 1 and big[0] == big[2] else big[0]), small[0]
    m = n * f
    up = rng.random() < 0.35
    if not up:
        q = way.format(n=n, l=L, s=S)
        if n == 1:
            a = f"1 {lname} = {m} {sname}."
        elif str(f).rstrip("0") == "1" or f < 10:
            a = f"{n} * {f} = {m}, so {n} {lname} = {m} {sname}."
        else:
            a = f"{product(n, f)}, so {n} {lname} = {m} {sname}."
        return Turn(q, a, "units", rf"(^|[^0-9]){m} ({small[0]}|{small[1]}|{small[2]})", typos=False)
    q = way.format(n=m, l=S, s=L)
    sname = small[1] if m == 1 and small[0] == small[2] else small[0]
    a = f"{m} / {f} = {n}, so {m} {sname} = {n} {lname}."
    return Turn(q, a, "units", rf"= {n} ({big[0]}|{big[1]}|{big[2]})", typos=False)


def unit_fact(rng):
    big, small, f = rng.choice(UNITS)
    q = rng.choice(["How many {s} are in one {l}?", "How many {s} are in a {l}?", "How many {s} has a {l}?", "How many {s} make one {l}?", "1 {l} in {s}", "how many {s} does a {l} have"]).format(s=small[2], l=big[1])
    lname = big[1] if big[0] == big[2] else big[0]
    return Turn(q, f"1 {lname} = {f} {small[0]}.", "units", rf"= {f} ", typos=False)


def celsius(rng, held=False):
    _, n = draw(rng, held, lambda: ("celsius", rng.randrange(-4, 41)))
    c, f = 5 * n, 9 * n + 32
    if rng.random() < 0.6:
        q = rng.choice(["{c} C in F", "Convert {c} Celsius to Fahrenheit", "What is {c} degrees Celsius in Fahrenheit?", "How many degrees Fahrenheit is {c} C?", "{c} celsius to fahrenheit", "turn {c} degrees Celsius into Fahrenheit"]).format(c=c)
        return Turn(q, f"{c} / 5 = {n}, {n} * 9 = {9 * n}, {9 * n} + 32 = {f}, so {c} C = {f} F.", "units", rf"= {f} F", typos=False)
    q = rng.choice(["{f} F in C", "Convert {f} Fahrenheit to Celsius", "What is {f} degrees Fahrenheit in Celsius?", "How many degrees Celsius is {f} F?", "{f} fahrenheit to celsius"]).format(f=f)
    return Turn(q, f"{f} - 32 = {9 * n}, {9 * n} / 9 = {n}, {n} * 5 = {c}, so {f} F = {c} C.", "units", rf"= {c} C", typos=False)


# ---- words -----------------------------------------------------------------------------------------------------------

ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sm sn sp st str t th tr v w wh y z".split()
VOWELS = "a e i o u ai ea ee oa oo ou".split()
CODAS = "b ck d ff g ll l m n nd ng nt p r rk rn rt s sh sk st t x".split() + [""] * 6


def pseudo(rng):
    """A pronounceable word that may not exist, so that every piece of text gets spelled."""
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if rng.random() < 0.5 else "") for _ in range(rng.choice((1, 2, 2, 3))))[:11]


def word(rng, held=False, *tag):
    if held:
        return draw(rng, True, lambda: ("word", rng.choice(COMMON)))[1]
    return draw(rng, False, lambda: ("word", rng.choices((rng.choice(COMMON), rng.choice(PROJECT), pseudo(rng)), (0.52, 0.1, 0.38))[0]))[1]


def quoted(rng, w):
    return rng.choice([w, w, w, f'"{w}"', f"'{w}'", f"the word {w}", f'the word "{w}"', f"the word '{w}'"])


def spell(rng, held=False):
    w = word(rng, held)
    q = rng.choice(["Spell {w}", "How do you spell {w}?", "How is {w} spelled?", "Can you spell {w}?", "spell {w} for me", "What is the spelling of {w}?", "Which letters are in {w}?", "Give me the letters of {w}", "letter by letter: {w}", "how do I spell {w}", "please spell {w}", "how is {w} written?", "the letters of {w}"]).format(w=quoted(rng, w))
    return Turn(q, "-".join(w), "words", "-".join(w) + r"\W*$", typos=False)


def reverse_word(rng, held=False):
    w = word(rng, held)
    q = rng.choice(["Reverse {w}", "Spell {w} backwards", "Write {w} backwards", "What is {w} backwards?", "{w} reversed", "reverse the letters of {w}", "Turn {w} around", "Can you reverse {w}?", "say {w} backwards", "How is {w} spelled backwards?", "{w} backwards", "flip {w}"]).format(w=quoted(rng, w))
    r = w[::-1]
    return Turn(q, f"{'-'.join(w)} backwards is {'-'.join(r)}: {r}", "words", rf"\b{r}\W*$", typos=False)


def count_letters(rng, held=False):
    w = word(rng, held)
    q = rng.choice(["How many letters are in {w}?", "How many letters does {w} have?", "Count the letters of {w}", "How many letters has {w}?", "number of letters in {w}", "count the letters in {w}", "What is the number of letters in {w}?", "letters in {w}?", "How many characters does {w} have?", "how many letters in {w}"]).format(w=quoted(rng, w))
    n = len(w)
    return Turn(q, ", ".join(f"{c} {i + 1}" for i, c in enumerate(w)) + f". So {w} has {n} letter{'s' if n > 1 else ''}.", "words", rf"{n} letters?\W*$", typos=False)


def count_one_letter(rng, held=False):
    w = word(rng, held)
    c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    q = rng.choice(["How many {c}s are in {w}?", "How many {c} are in {w}?", "How many times does {c} occur in {w}?", "Count the letter {c} in {w}", "How often is {c} in {w}?", "How many times is the letter {c} in {w}?", "how many {c}'s in {w}", "number of {c} in {w}", "How many letters {c} does {w} have?"]).format(w=quoted(rng, w), c=c)
    out, n = [], 0
    for x in w:
        if x == c:
            n += 1
            out.append(f"{x} {n}")
        else:
            out.append(x)
    return Turn(q, ", ".join(out) + f". So {w} has {n} {c}.", "words", rf"has {n} {c}\W*$", typos=False)


def nth_letter(rng, held=False):
    w = word(rng, held)
    k = rng.randrange(min(len(w), 6))
    if rng.random() < 0.3:
        q, c = rng.choice(["What is the last letter of {w}?", "the last letter of {w}", "Which letter does {w} end with?", "last letter of {w}?"]), w[-1]
        return Turn(q.format(w=quoted(rng, w)), f"The last letter of {w} is {c}.", "words", rf"is {c}\W*$", typos=False)
    name = "first second third fourth fifth sixth".split()[k]
    q = rng.choice(["What is the {k} letter of {w}?", "the {k} letter of {w}", "Which letter is {k} in {w}?", "{k} letter of {w}?", "tell me the {k} letter of {w}"]).format(k=name, w=quoted(rng, w))
    return Turn(q, ", ".join(f"{c} {i + 1}" for i, c in enumerate(w[:k + 1])) + f". The {name} letter of {w} is {w[k]}.", "words", rf"is {w[k]}\W*$", typos=False)


def words_list(rng, held, tag, lo=3, hi=6):
    return list(draw(rng, held, lambda: (tag, *rng.sample(COMMON, rng.randrange(lo, hi))))[1:])


def listed(rng, ws):
    r = rng.random()
    if r < 0.45:
        return ", ".join(ws)
    if r < 0.65:
        return " ".join(ws)
    if r < 0.85:
        return ", ".join(ws[:-1]) + " and " + ws[-1]
    return "; ".join(ws) if r < 0.9 else ",".join(ws)


def sort_words(rng, held=False):
    ws = words_list(rng, held, "sort")
    if rng.random() < 0.2 and not held:  # words that begin alike
        c = rng.choice(COMMON)[0]
        alike = [w for w in COMMON if w[0] == c]
        ws = rng.sample(alike, min(len(alike), rng.randrange(2, 5)))
    q = rng.choice(["Sort these words: {l}", "Sort {l}", "Put these words in alphabetical order: {l}", "Sort alphabetically: {l}", "alphabetize {l}", "Order these words: {l}", "Sort the words {l}", "Can you sort {l}?", "Please sort: {l}", "arrange {l} alphabetically", "Bring {l} into alphabetical order", "sort from a to z: {l}", "sort this list: {l}"]).format(l=listed(rng, ws))
    out = ", ".join(sorted(ws))
    return Turn(q, out, "words", out + r"\W*$", typos=False)


def sort_numbers(rng, held=False):
    ns = list(draw(rng, held, lambda: ("sortn", *rng.sample(range(100), rng.randrange(3, 6))))[1:])
    if rng.random() < 0.4 and not held:
        ns = [number(rng) for _ in ns]
    down = rng.random() < 0.2
    q = rng.choice(["Sort these numbers: {l}", "Sort {l}", "Put {l} in order", "Order these numbers: {l}", "Sort the numbers {l}", "Can you sort {l}?", "sort ascending: {l}", "arrange {l} from small to large", "sort this list: {l}"] if not down else
                   ["Sort {l} in descending order", "sort descending: {l}", "Sort these numbers from large to small: {l}", "arrange {l} from large to small"]).format(l=listed(rng, list(map(str, ns))))
    out = ", ".join(map(str, sorted(ns, reverse=down)))
    return Turn(q, out, "words", out + r"\W*$", typos=False)


def reverse_order(rng, held=False):
    ws = words_list(rng, held, "rev")
    q = rng.choice(["Reverse the order of these words: {l}", "Say these words in reverse order: {l}", "Write these words from last to first: {l}", "reverse this list: {l}", "Turn this list around: {l}", "list in reverse order: {l}"]).format(l=listed(rng, ws))
    out = ", ".join(ws[::-1])
    return Turn(q, out, "words", out + r"\W*$", typos=False)


def count_words(rng, held=False):
    ws = words_list(rng, held, "countw", 2, 9)
    s = " ".join(ws)
    q = rng.choice(["How many words are in '{s}'?", 'How many words are in "{s}"?', "Count the words: {s}", "How many words does this have: {s}", "Count the words in {s}", "number of words in '{s}'", "how many words: {s}"]).format(s=s)
    n = len(ws)
    return Turn(q, ", ".join(f"{w} {i + 1}" for i, w in enumerate(ws)) + f". So {n} words.", "words", rf"\b{n} words\W*$", typos=False)


def count_numbers(rng, held=False):
    _, a, b = draw(rng, held, lambda: ("count", rng.randrange(1, 20), rng.randrange(1, 31)))
    if rng.random() < 0.5:
        a = 1
    if a == b:
        b += 1
    down = b < a
    out = ", ".join(map(str, range(a, b - 1, -1) if down else range(a, b + 1)))
    ways = ["Count from {a} to {b}", "count {a} to {b}", "Can you count from {a} to {b}?", "Please count from {a} to {b}", "list the numbers from {a} to {b}", "numbers from {a} to {b}"]
    if a == 1 and not down:
        ways += ["Count to {b}", "Can you count to {b}?", "count up to {b}"] * 2
    if down:
        ways = ["Count down from {a} to {b}", "Count from {a} down to {b}", "count backwards from {a} to {b}", "Count from {a} to {b}"]
    return Turn(rng.choice(ways).format(a=a, b=b), out, "words", out + r"\W*$", typos=False)


# ---- small talk --------------------------------------------------------------------------------------------------------

TALK = [  # questions, answer
    (["Hello", "Hi", "Hey", "hello there", "hi there", "Hey there", "Hello!", "hi!", "Good day", "Greetings", "howdy", "hey you", "yo", "Hi Vibrant", "Hello Vibrant", "hallo", "hello model", "hello my friend", "hi everyone", "hello again", "hey model", "hello, is somebody there?", "nice to meet you", "hi, glad to meet you", "hello dear", "a good day to you", "hey friend", "hi hi", "helo", "hii", "heya", "hey there!!", "hellow", "hullo", "hi bot", "yo!", "hey hey hey", "oi", "hi bro", "sup?", "wassup"], "Hello! Ask me about Vibrant, or let me calculate something."),
    (["Good morning", "good morning!", "morning"], "Good morning! What can I do for you?"),
    (["Good evening", "good evening!", "evening"], "Good evening! What can I do for you?"),
    (["Good afternoon", "good afternoon!"], "Good afternoon! What can I do for you?"),
    (["How are you?", "How are you doing?", "How do you do?", "how is it going?", "How are things?", "What's up?", "are you well?", "how do you feel?", "how are you today", "you ok?", "how's it going", "are you fine?", "how have you been", "how do you feel today?", "how are you this evening?", "how are you feeling", "how is your day?", "how are you doing today", "everything fine?"], "I am fine, thank you. What can I do for you?"),
    (["Thanks", "Thank you", "thx", "thx a lot", "thanks a bunch", "ta", "thank u", "thank u so much", "thnx", "tyvm", "thanks mate", "thank you kindly", "ty", "Thanks a lot", "Thank you very much", "many thanks", "thank you so much", "thanks!", "Great, thanks", "ok thanks", "cheers", "that helped, thanks", "thanks for your help", "perfect, thank you", "thank you, that helps", "nice, thanks", "thank you for the answer", "thanks for explaining", "thanks, that was helpful", "thank you, very useful", "great help, thank you", "thanks for the information", "i thank you", "thank you for your time", "thanks, good answer", "that was useful, thanks"], "You are welcome."),
    (["Bye", "Goodbye", "See you", "bye bye", "See you later", "good night", "farewell", "until next time", "I have to go", "that is all", "ciao", "take care", "have a nice day", "see you tomorrow", "i am leaving", "bye for today", "ok, bye", "goodbye for now", "well, goodbye", "bye then", "I am off", "gotta go", "cya", "cu", "later!", "l8r", "im out", "off i go", "i must go now", "ok see you", "time to go, bye", "talk to you later", "good bye my friend"], "Goodbye! Type /bye to leave the chat."),
    (["ok", "Okay", "I see", "alright", "good", "fine", "all right", "understood", "got it", "Great", "Nice", "Cool", "perfect", "wonderful", "very good", "makes sense", "good to know", "interesting", "wow", "well done", "good job", "that worked", "it works", "you are right", "right", "awesome"], "Good. What else can I do for you?"),
    (["haha", "hehe", "lmao", "rofl", "omg", "ugh", "oh no", "hmmm", "hm", "uh", "eh", "oh", "ah", "oh well", "never mind", "nvm", "whatever", "dunno", "no idea", "pff", "hmpf", "yay", "uhm", "erm", "let me think", "one moment", "wait", "just looking", "just testing around", "tbh", "afk", "ttyl", "wtf", "ok then", "so so", "bla", "mm", "mhm", "mmhm", "hmmmmm", "ooh", "aah", "aha", "argh", "grr", "ehh", "uff", "hmph", "duh", "bro", "dude", "man", "boo", "lol", "rotfl", "idk man", "idk tbh", "i dunno", "idc", "ikr", "brb", "smh", "meh", "nah", "jk", "phew", "huh ok", "eek", "tsk"], "Ask me about Vibrant, or let me calculate something."),
    (["Sorry", "I am sorry", "my mistake", "my bad", "pardon", "excuse me", "oops", "apologies", "wrong chat, sorry", "wrong person", "wrong person, sorry", "sorry, that was not for you", "sorry, not meant for you", "that was a typo", "typo, sorry", "oops, wrong key", "wrong terminal", "sorry, wrong terminal", "forgive me", "my apologies", "sry", "oh sorry", "sorry about that", "pardon me", "sorry, I meant someone else", "wrong tab", "wrong window", "wrong window lol", "wrong tab lol", "lol wrong window", "wrong chat", "oops, wrong chat", "wrong channel lol", "i dialed wrong", "that message was for somebody else"], "No problem. What can I do for you?"),
    (["That is wrong", "You are wrong", "wrong", "That is not right", "This is false", "no, that is wrong", "incorrect", "your answer is wrong", "that's not true", "I don't think so", "are you sure?", "that can't be right", "I think that is wrong", "I believe you are wrong", "that seems wrong", "this is not correct", "that was a mistake", "you made a mistake", "that answer is false"], "I may be wrong: I am a small model. Please check with the documentation in docs/."),
    (["Tell me a joke", "Do you know a joke?", "make me laugh", "say something funny", "a joke please", "joke", "can you tell a joke", "be funny", "another joke", "entertain me", "tell me your best joke", "have you got a joke?", "I want to hear a joke", "one joke please", "do you know any jokes?", "can you make a joke", "let me hear a joke", "what jokes do you know?"], "Why did the tensor go to the doctor? It had lost its shape."),
    (["I love you", "I like you", "you are great", "You are nice", "you are cool", "you're the best", "you are awesome", "you are so helpful", "good bot", "you are smart", "i really like this"], "Thank you, that is kind."),
    (["I am bored", "I'm bored", "this is boring", "boring", "what should i do now", "i have nothing to do"], "Let me calculate something, or ask how Vibrant works."),
    (["yes", "Yes please", "yeah", "sure", "yep", "of course", "yes, go on", "go on", "continue", "go ahead", "please continue"], "Then ask me a question, please."),
    (["no", "No thanks", "nope", "not really", "no thank you", "nothing", "nothing else", "no more questions"], "All right. I am here if you need me."),
    (["Do you have feelings?", "Can you feel?", "are you happy?", "are you alive?", "Do you sleep?", "do you dream?", "Do you eat?", "are you conscious?", "do you have a body?", "do you feel pain?", "are you real?", "do you have friends", "do you ever get tired", "do you feel emotions?", "can you be sad?", "are you sad?", "do you love someone?", "do you get angry?", "have you got feelings?", "are you afraid?", "can you think?", "do you have a soul?", "are you bored?"], "No. I am a small language model, only numbers in a file."),
    (["How old are you?", "When were you born?", "what is your age?", "when is your birthday?", "what's your birthday", "how young are you"], "I have no age: I am as old as the file that holds me."),
    (["Where are you?", "Where do you live?", "where are you from?", "where do you run?", "in which place are you", "where are you located"], "I live inside the vibrant command on your machine."),
    (["Test", "testing", "this is a test", "test test", "is this thing on?", "Are you there?", "can you hear me?", "do you work?", "anybody there?", "ping", "can you read this?", "is anyone there", "are you listening"], "I am here and I work."),
    (["Which languages do you speak?", "Do you speak German?", "Do you speak French?", "Can you speak Spanish?", "do you understand english?", "what languages do you know?", "Sprichst du Deutsch?", "Parlez-vous francais?", "do you speak other languages", "can you talk in chinese", "can you speak Russian?", "do you understand Italian?", "Do you speak Japanese?", "can you answer in German?", "do you know Polish?", "Can you speak Turkish?", "do you understand spanish", "speak French with me", "hablas espanol?", "do you only speak English?", "please answer in Dutch", "can you write Greek?", "do you understand other languages?", "are you able to speak Swedish?", "parli italiano?"], "I speak only English."),
    (["Do you remember me?", "Do you remember our last chat?", "will you remember this?", "do you have a memory?", "do you learn from our chat?", "do you store what I say?", "do you keep our conversation"], "I remember only this conversation, until /clear or the end."),
    (["I don't understand", "I do not understand", "what do you mean?", "that is unclear", "huh?", "what?", "I'm confused", "can you explain that?", "explain more", "more details please", "i am lost", "hm?"], "Please ask in other words, or look into the docs/ folder for details."),
    (["Say hello", "say hi", "greet me", "say something", "talk to me", "speak", "please say hello", "let's talk", "let us chat", "chat with me", "i want to talk"], "Hello! Ask me about Vibrant, or let me calculate something."),
]


def small_talk(rng):
    qs, a = rng.choice(TALK)
    return Turn(rng.choice(qs), a, "talk")


def my_name(rng, extra=()):
    """The user tells a name and asks for it later."""
    n = rng.choice(NAMES) if rng.random() < 0.7 else pseudo(rng).capitalize()
    turns = [Turn(rng.choice(["My name is {n}.", "I am {n}", "I'm {n}.", "Call me {n}", "Hi, I am {n}", "Hello, my name is {n}", "my name is {n}", "people call me {n}", "this is {n}"]).format(n=n), f"Nice to meet you, {n}.", "talk", noise=False)]
    turns += list(extra)
    turns.append(Turn(rng.choice(["What is my name?", "Do you know my name?", "Who am I?", "what's my name?", "Do you remember my name?", "how am i called?", "tell me my name", "say my name"]), f"Your name is {n}.", "talk", rf"\b{n}\b"))
    return turns


SKILLS = [  # function, weight
    (arithmetic, 38), (special_arithmetic, 5), (beyond, 20), (is_larger, 3), (story, 4), (compare, 3), (unit, 8), (unit_fact, 1), (celsius, 2), (spell, 3), (reverse_word, 5), (count_letters, 4),
    (count_one_letter, 4), (nth_letter, 2), (sort_words, 7), (sort_numbers, 4), (reverse_order, 2), (count_words, 3), (count_numbers, 2),
]


def skill(rng):
    return rng.choices([f for f, _ in SKILLS], [w for _, w in SKILLS])[0](rng)
