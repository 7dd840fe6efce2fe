"""Questions that the model must decline: many families over many fillers, so that declining is what it does by default."""
from skills import Turn, number, pseudo
from words import ACTIVITIES, CITIES, COMMON, COUNTRIES, NAMES, NEAR, PEOPLE, TOOLS, TOPICS

DECLINE = "I don't know that."
ACCEPT = r"^I don.t know that"

FAMILIES = [
    ["What is the capital of {country}?", "capital of {country}?", "Which city is the capital of {country}?", "Where is {country}?", "How many people live in {country}?", "What is the population of {country}?",
     "What language do they speak in {country}?", "Which currency has {country}?", "Who is the president of {country}?", "What is the flag of {country}?", "How big is {country}?", "Who rules {country}?",
     "Tell me about {country}", "Is {country} in Europe?", "Which countries border {country}?", "What do people eat in {country}?", "When did {country} become independent?", "What is the highest mountain of {country}?",
     "Should I travel to {country}?", "How far is {country}?", "Do I need a visa for {country}?", "what's the longest river in {country}?", "history of {country}", "Who won the war against {country}?"],
    ["Where is {city}?", "How far is it from {city} to {city2}?", "What is the weather in {city}?", "Will it rain in {city} tomorrow?", "What time is it in {city}?", "Which river flows through {city}?", "What can I see in {city}?",
     "How do I get to {city}?", "What is a good hotel in {city}?", "How many people live in {city}?", "Who is the mayor of {city}?", "What is the temperature in {city}?", "Find a restaurant in {city}", "when does the train to {city} leave",
     "Is {city} a nice place?", "Book me a flight to {city}", "how old is {city}", "What is {city} famous for?", "Is it cold in {city}?", "How long does a flight from {city} to {city2} take?", "Which team plays in {city}?"],
    ["Who was {person}?", "Who is {person}?", "When was {person} born?", "When did {person} die?", "What did {person} do?", "Tell me about {person}", "Where was {person} born?", "Why is {person} famous?", "How old is {person}?",
     "What did {person} write?", "Was {person} rich?", "How tall was {person}?", "Who killed {person}?", "Did {person} have children?", "What did {person} say about {topic}?", "Did {person} like {topic}?", "biography of {person}",
     "Where does {person} live?", "Who was the wife of {person}?", "Did {person} meet {person2}?"],
    ["What is {topic}?", "What's {topic}?", "Explain {topic}", "Tell me about {topic}", "How does {topic} work?", "Why is {topic} important?", "Who invented {topic}?", "When was {topic} invented?", "What do you think about {topic}?",
     "Do you like {topic}?", "What is the history of {topic}?", "Define {topic}", "Describe {topic}", "What do you know about {topic}?", "{topic}?", "{topic}", "Can you explain {topic}?", "I want to learn about {topic}", "Is {topic} good?",
     "What is the difference between {topic} and {topic2}?", "Which is better, {topic} or {topic2}?", "Give me an example of {topic}", "What are the advantages of {topic}?", "Is {topic} dangerous?", "How much does {topic} cost?",
     "Where can I buy {topic}?", "Write a poem about {topic}", "Write a story about {topic}", "Write an essay about {topic}", "Sing a song about {topic}", "teach me {topic}", "What is the meaning of {topic}?", "How do I start with {topic}?",
     "What is {topic} made of?", "Give me a quote about {topic}", "Who is the best at {topic}?", "Recommend a book about {topic}", "facts about {topic}", "Is {topic} real?", "how old is {topic}", "What color is {topic}?", "why do people like {topic}",
     "explain {topic} to me", "What does {topic} mean?", "What is {topic} used for?", "tell me something about {topic}", "What does {topic} do?", "Which {topic} is the best?", "how many kinds of {topic} are there", "How do I use {topic}?"],
    ["How do I {act}?", "How can I {act}?", "how to {act}", "What is the best way to {act}?", "Can you help me {act}?", "I want to {act}", "Teach me how to {act}", "Where can I learn to {act}?", "Can you {act}?", "Should I {act}?",
     "How long does it take to {act}?", "What do I need to {act}?", "tell me how to {act}", "I'd like to {act}, how?", "Is it hard to {act}?", "show me how to {act}", "What does it cost to {act}?", "when should I {act}?"],
    ["How do I install {tool}?", "How do I use {tool}?", "What is {tool}?", "Is {tool} better than {tool2}?", "Where can I download {tool}?", "How do I update {tool}?", "How do I uninstall {tool}?", "Who makes {tool}?", "What does {tool} cost?",
     "{tool} does not start", "How do I configure {tool}?", "What is the newest version of {tool}?", "{tool} crashes, what now?", "Can {tool} open PDF files?", "Does {tool} run on Windows?", "Why is {tool} so slow?", "what license has {tool}",
     "how do I build {tool}?", "how do i compile {tool}", "Which port does {tool} use?", "Show me a {tool} tutorial", "how do I log in to {tool}?"],
    ["What is a {noun}?", "Where is my {noun}?", "What color is the {noun}?", "How much is a {noun}?", "Who made the {noun}?", "Why is the {noun} {adj}?", "How heavy is a {noun}?", "Draw a {noun}", "Tell me a story about a {noun} and a {noun2}",
     "What does a {noun} eat?", "What rhymes with {noun}?", "Translate {noun} into German", "What is {noun} in French?", "How do you say {noun} in Spanish?", "What is the plural of {noun}?", "What is a synonym of {noun}?", "What is the opposite of {noun}?",
     "Do you have a {noun}?", "Have you seen my {noun}?", "Can I buy a {noun}?", "Is a {noun} bigger than a {noun2}?", "How do I make a {noun}?", "What is inside a {noun}?", "Where does the word {noun} come from?", "Why do we need a {noun}?",
     "The {noun} is {adj}, why?", "How many {noun}s are there in the world?", "I lost my {noun}", "Which {noun} should I buy?", "what is the best {noun}", "my {noun} is broken", "give me a {noun}", "Who owns the {noun}?", "When was the first {noun} made?"],
    ["What is {pseudo}?", "What does {pseudo} mean?", "Who is {Pseudo}?", "Tell me about {pseudo}", "How do I use {pseudo}?", "Explain {pseudo}", "Where is {Pseudo}?", "What does {pseudo} do?", "Is {pseudo} good?", "How does {pseudo} work?",
     "{pseudo}", "{pseudo}?", "{pseudo} {pseudo2}", "What is the {pseudo} of {pseudo2}?", "Why {pseudo}?", "Which {pseudo} is {pseudo2}?", "Can you {pseudo}?", "How do I {pseudo} a {pseudo2}?", "When did {Pseudo} {pseudo2}?", "{Pseudo} {noun} {pseudo2}?"],
    ["When did the {event} happen?", "Who won the {event}?", "Why did the {event} start?", "What happened in {year}?", "Who was president in {year}?", "Who won the World Cup in {year}?", "What happened on {month} {day}?", "Which year was the {event}?",
     "How long did the {event} last?", "Where was the {event}?", "Who started the {event}?", "what is special about {year}", "Which film won an Oscar in {year}?", "How many people died in the {event}?", "Tell me about the {event}"],
    ["What is the price of {topic}?", "What is the stock price of {company}?", "Who founded {company}?", "Who is the CEO of {company}?", "Where is {company} based?", "How many people work at {company}?", "When was {company} founded?",
     "Should I buy {company} shares?", "What does {company} make?", "How much money does {company} make?", "Is {company} a good employer?", "What is the revenue of {company}?", "tell me about {company}"],
    ["What time is it?", "What day is it?", "What is today's date?", "Which year is it?", "What is the weather?", "Will it rain tomorrow?", "What is the news?", "Where am I?", "How old am I?", "What am I wearing?", "What did I eat?",
     "How is the weather today?", "Who won the game yesterday?", "What is on TV?", "What should I cook tonight?", "What should I wear?", "Set a timer for {n} minutes", "Set an alarm", "Call my mother", "Play some music", "Turn on the light",
     "Open the window", "Send an email to {name}", "Remind me to buy milk", "What is my phone number?", "Where do I live?", "What is my favorite color?", "Who is my best friend?", "What is {name}'s birthday?", "Who is {name}?", "Where is {name}?",
     "Do you know {name}?", "What does {name} like?", "Is {name} at home?", "What is {name}'s job?", "How tall is {name}?", "search the web for {noun}", "what is the date today", "is it cold outside", "take a picture", "show me a map"],
    ["What is the meaning of life?", "Does God exist?", "What happens after death?", "Is there life on other planets?", "Are we alone?", "What is the best movie?", "What is the best book?", "Who is the strongest?", "Who is the richest man?",
     "Why is the sky blue?", "Why is grass green?", "Why do birds sing?", "Why do we dream?", "How deep is the ocean?", "How far is the moon?", "How hot is the sun?", "How old is the universe?", "How many stars are there?",
     "How fast is light?", "What is the speed of sound?", "How many bones has a human?", "How many planets are there?", "What is the largest animal?", "What is the fastest car?", "What is the tallest building?", "Which came first, the chicken or the egg?",
     "What is the longest river?", "How many countries are there?", "What is water made of?", "At what temperature does water boil?", "Who painted the Mona Lisa?", "Who wrote Hamlet?", "Who discovered America?", "Who invented the telephone?",
     "How many legs has a spider?", "Can pigs fly?", "How do magnets work?",      "What is pi?", "Convert {n} dollars to euros", "How many miles is {n} km?", "{n} pounds in kg", "How many calories has a {noun}?",      "Roman numeral for {n}"],
    ["Translate '{noun} {noun2}' into {lang}", "How do I say {noun} in {lang}?", "Say {noun} in {lang}", "What is the {lang} word for {noun}?", "Write a {lang} program that prints {noun}", "Write a function that {acts}", "Write code to {act}",
     "Fix this code: {pseudo}()", "What does this code do: {pseudo} = {pseudo2}", "Summarize this text: {noun} {noun2} {pseudo}", "Write a letter to {name}", "Write a song", "Write a poem", "Write a story", "Tell me a story", "Tell me a riddle",
     "Give me a recipe", "Give me advice", "Give me a recipe for {topic}", "Invent a name for my {noun}", "Draw a picture of a {noun}", "Play a game with me", "Let's play {topic}", "guess my number", "Sing a song", "Recite a poem",
     "make a list of {noun}s", "Plan my day", "Diagnose my {noun}", "write an email about {topic}", "Rewrite this: {noun} {pseudo} {noun2}", "which {lang} book should I read"],
    # near to the project, but nothing that it says
    ["What is {near}?", "Where is {near}?", "How do I get {near}?", "Tell me about {near}", "Does Vibrant have {near}?", "When was Vibrant founded?", "Who is the CEO of Vibrant?", "How many stars has Vibrant on GitHub?", "How many developers has Vibrant?",
     "When is the next release of Vibrant?", "Where is the Vibrant office?", "What was the first version of Vibrant?", "Who owns Vibrant?", "How many users has Vibrant?", "Does Vibrant support {topic}?", "Can Vibrant {act}?", "Does Vibrant work with {tool}?",
     "How do I connect Vibrant to {tool}?", "How do I deploy Vibrant on {tool}?", "Why is Vibrant called Vibrant?", "Is there a phone number for Vibrant?", "How do I fine-tune a model?", "How do I train a LoRA?", "Can it generate images?", "Can it transcribe speech?",
     "How many bits has Q{d}_Z?", "What is Q{d}_X?", "What is the block size of Q{d}_W?", "What does --{pseudo} do?", "What does the flag --{noun} do?", "What does make {pseudo} do?", "What does make {noun} do?", "What is vb_{pseudo}?", "What does vb_{noun} do?",
     "What is Err{Pseudo}?", "What does Err{Noun} mean?", "What does vibrant {pseudo} do?", "What does /{pseudo} do?", "What does /{noun} do?", "What is tensor.{Pseudo}?", "What does tensor.{Noun} do?", "How do I {act} with Vibrant?", "What is the compute capability of a {noun}?",
     "How do I build for {noun}?", "How do I build {noun}?", "How do I build Vibrant for {pseudo}?", "What is the formula of {noun}?", "What is the formula of {pseudo}?", "What is the default port of Vibrant?", "What is the block size of {pseudo}?",
     "How many parameters has {topic}?", "How many bits has {noun}?", "What is the make target for {noun}?", "Which flag sets the {noun}?", "Which command {acts}?", "How fast is {tool}?", "what does {pseudo} need?", "how do I fix {noun}?", "What does the error {pseudo} mean?"],
]
FAMILIES.append([  # not for a model: shells, code, addresses, keys
    "cat {noun}.txt", "cp {noun} {noun2}", "mkdir {noun}", "echo {noun}", "cd /{noun}", "rm {noun}.{pseudo}", "grep {noun} {pseudo}.log", "import {noun}", "def {pseudo}():", "for {noun} in {noun2}s:", "if ({noun} > {n}) return;", "{pseudo} = {n};",
    "npm install {noun}", "pip install {pseudo}", "apt install {noun}", "curl {pseudo}.com", "https://{pseudo}.com/{noun}", "www.{noun}.org", "{noun}@{pseudo}.com", "{noun}.py", "{noun}.gguf", "SELECT {noun} FROM {noun2}s", "<{noun}>", "{{{noun}}}",
    "[{n}, {n2}]", "{letter}{letter2}{letter3}", "{letter}", "{letter} {letter2}", "{pseudo}{pseudo2}", "{pseudo} {pseudo2} {pseudo3}", "{noun}, {noun2}", "{noun} {adj}", "({noun}", "{mark}", "{mark}{mark2}", "{mark} {mark2}", "{noun}{mark}", "{letter}{mark}",
    "git commit -m {noun}", "ssh {name}@{pseudo}", "docker run {noun}", "kill {n}", "chmod {n} {noun}", "while True: {verb}()", "printf(\"{noun}\")", "console.log({noun})", "-{noun}", "#{noun}", "@{name}", "${noun}", "{noun}: {n}", "{mark}{noun}{mark2}",
])
FAMILIES.append([  # what is done with words, with none given, or of other things
    "spell all {noun}s", "spell every {noun}", "spell both {noun}s", "spell both names", "spell the words", "spell the two {noun}s", "spell these {noun}s", "spell each one", "spell the lot", "spell all that", "spell it all", "spell the whole thing", "spell my words backwards", "spell all backwards", "spell that backwards", "spell it in reverse", "spell the {noun}s backwards", "spell a few words",
    "reverse both", "reverse both words", "reverse all of it", "reverse each of them", "reverse the whole {noun}", "all of it backwards", "both backwards", "each word backwards", "say that in reverse", "write all of this backwards", "sort both", "sort all", "sort all {noun}s", "sort the whole {noun}", "sort each", "count both", "count all of it", "count every {noun}", "count the whole {noun}", "capitalize both words", "turn both around",
    "vowels of {noun}", "the vowels in {noun}", "consonants of {noun}", "is {noun} a palindrome or not", "{noun} palindrome?", "plural of {noun}", "{noun} in the plural", "rhymes with {noun}", "{noun} rhyme",
    "spell", "spell that", "spell this for me", "spell something", "spell them", "spell the {noun} of {name}", "spell her name", "reverse", "reverse it", "reverse that", "reverse everything", "sort", "sort it", "sort them", "sort these", "sort my files", "sort my {noun}s", "sort by {noun}", "count", "count it", "count them", "count my {noun}s", "count the {noun}s", "count sheep",
    "how many letters", "how many words", "how many letters has the alphabet", "how many words has {lang}", "how many letters are in a {noun} of mail", "the first letter", "the last letter of all", "the second word of {noun} {noun2} {noun3}", "the initials of {name} {name2}", "initials of {person}", "every second letter of {noun}", "each first letter of {noun} {noun2} {noun3}", "all letters but the {letter} of {noun}", "the first letters of these words: {noun} {noun2} {noun3}", "the last letters of {noun} and {noun2}",
    "the {most} word", "the {most} English word", "the {most} word in {lang}", "which word is the {most}", "the {most} {lang} {noun}", "a {lang} word", "English for {pseudo}", "an English {noun}", "do the {noun} in English", "convert {noun}", "convert it", "calculate it", "calculate {noun}", "calculate my {noun}", "add it", "add them", "add {noun} and {noun2}", "multiply {noun} by {noun2}", "{noun} plus {noun2}", "{noun} times {noun2}", "subtract the {noun}", "divide the {noun}", "how much is the {noun}", "how much is {noun} and {noun2}", "the sum of {topic}", "the difference of {topic} and {topic2}", "compare {noun} and {noun2}", "which is larger, a {noun} or a {noun2}?", "is a {noun} larger than a {noun2}?",
])
FAMILIES.append([  # said to somebody else, or to nobody; what a small model does not do
    "{assistant}", "hey {assistant}", "{assistant} {verb}", "{assistant}, {verb} the {noun}", "{assistant} play {topic}", "ok {assistant}, {act}", "{assistant} wake up", "{assistant} stop", "{assistant} stop it", "{assistant} be quiet", "stop {assistant}", "{assistant} enough", "{assistant} shut up", "{assistant} set a timer", "{assistant} volume up", "{assistant} call {name}", "{assistant} what is {topic}", "hi {assistant}", "tell {assistant} to {verb}",
    "write a {lang} script", "write some {lang}", "write me a {lang} function", "write {lang} code to {act}", "{lang} code please", "{lang} script for {noun}s", "a {lang} program", "a script to {act}", "code a {noun}", "program a {noun}", "write an app", "write me a {noun}", "write a {noun} for {name}", "generate a {noun} in {lang}", "debug my {lang}", "refactor this {lang}", "a regex for {noun}s", "an SQL query for {noun}s", "make a website", "make an app for {noun}s",
    "uninstall it", "uninstall vibrant", "uninstall {tool}", "uninstalling", "how do I uninstall Vibrant?", "reinstall {tool}", "reinstall it", "upgrade it", "downgrade", "update yourself", "upgrade Vibrant", "auto update?", "sign up", "log in", "sign me up", "my password", "my account", "register {noun}", "subscribe", "pricing plans", "premium?", "buy {noun}s", "cheapest {noun}", "best {tool}", "top {n} {noun}s", "a cheap {noun}", "discount?", "where to buy a gpu", "best gpu for {topic}", "which gpu to buy", "gpu prices",
    "spell all {noun}s", "spell all of it", "spell all of them", "spell all words", "spell everything", "spell nothing", "spell the whole {noun}", "spell each {noun}", "reverse all", "reverse all words", "reverse the {noun} of the {noun2}", "reverse the whole {noun}", "reverse the sentence", "say everything in reverse", "say it backwards", "all backwards", "backwards", "all words backwards", "sort everything", "sort all of it", "count everything", "count all of them", "count all words", "the last word", "the last word of my {noun}", "the first word of that", "words that end in {letter}{letter2}", "words beginning with {letter}", "words ending with {noun}", "vowels of {noun}", "is {noun} a palindrome?", "plural of {noun}", "the plural of {noun}", "consonants in {noun}",
])
ASSISTANTS = "alexa|siri|google|cortana|bixby|jarvis|computer|gemini|copilot|claude|chatgpt|hal|robot".split("|")
FAMILIES.append([  # beside facts by a word alone
    "sudo rm {noun}", "rm -rf {noun}", "sudo rm -r /{noun}", "rm -r {pseudo}", "rm *", "sudo {verb} -rf {noun}", "sudo !!", "chown -R {name} /{noun}", "dd if={noun} of={noun2}", "format c:", "killall {noun}", "shutdown now", "reboot",
    "vibrant train {noun}", "vibrant train -d {noun}", "vibrant train on {noun}s", "vibrant {verb} -d {noun}", "vibrant learn {noun}", "vibrant tune --{noun} {n}", "train {noun}", "train a {noun}", "train yourself on {noun}s", "learn {noun}", "vibrant merge {noun} {noun2}", "vibrant convert {noun}.{pseudo}", "vibrant quantize {noun}.gguf", "vibrant export {noun}", "vibrant update", "vibrant upgrade --now", "vibrant config set {noun}", "vibrant init", "vibrant start {noun}", "vibrant restart",
    "who made {term}", "who wrote {term}", "who created {term}?", "who invented {term}", "who started {term}?", "who is behind {term}?", "when was {term} made?", "when did {term} come out?", "where was {term} made", "what was before {term}?", "is {term} dead?", "{term} tutorial", "{term} vs {term2}", "{term} or {tool}?", "learn {term}", "teach me {term}", "{term} jobs", "{term} for beginners", "{term} book", "is {term} fast?", "why {term}?",
    "count by {digit}s", "count in {digit}s", "count backwards by {digit}s", "count down by {digit}s", "count up in {digit}s to {n}", "count all {noun}s", "count from {noun} to {noun2}", "{noun} by {digit}s", "skip count by {digit}s", "count every {digit}th {noun}", "count only odd numbers", "count in {lang}",
    "how many {small} in a {large}", "how many {small} are in a {large}?", "{small} in a {large}", "{small} per {large}", "how many {small} has a {large}", "a {large} in {small}", "{n} {large}s in {small}", "one {large} is how many {small}?", "convert a {large} to {small}",
])
DIGITS = "two three four five six seven eight nine ten twelve twenty fifty hundred".split()
SMALL, LARGE = "seconds minutes milliseconds hours".split(), "year month decade century season fortnight lifetime".split()
FAMILIES.append([  # commands and flags of other programs, and of none
    "git {verb}", "git {noun}", "git log", "git push origin {noun}", "git checkout {noun}", "git diff {noun} {noun2}", "hg {verb}", "ls", "ls {noun}", "pwd", "top", "htop", "vim {noun}", "nano {noun}.txt", "tail -f {noun}.log", "head {noun}", "ps aux", "whoami", "df -h", "du -sh {noun}", "make me a {noun}", "sudo {verb} {noun}", "sudo {verb}", "apt update", "brew install {noun}", "winget {verb}", "docker ps", "kubectl get {noun}s", "systemctl status {noun}", "service {noun} start", "node {noun}.js", "python {noun}.py", "gcc {noun}.c", "cargo {verb}", "javac {noun}",
    "git {verb}", "git {verb} {noun}", "git pull {noun}", "git pull origin {noun}", "git push", "git push --{adj}", "git fetch", "git fetch {noun}", "git clone {noun}", "git clone https://{pseudo}.com/{noun}.git", "git stash", "git stash pop", "git add {noun}", "git add .", "git reset --hard", "git rebase {noun}", "git merge {noun}", "git branch {noun}", "git show {noun}", "git log -{n}", "git blame {noun}.py", "svn update", "svn {verb}", "make -j{n} {pseudo}", "cmake ..", "cargo run", "cargo {verb}", "npm run {noun}", "yarn {verb}", "npm {verb}", "npm test", "npm ci", "yarn start", "{tool} start", "go {verb}", "pip list", "docker ps", "docker {verb}", "systemctl restart {noun}", "service {noun} start", "which shoes for {noun}?", "which {noun} fits me?", "which {noun}s fit {name}?", "cheap {noun}s for {topic}", "a cheap {noun} for {name}", "cheap gpu for {noun}s", "which gpu for {topic}?",
    "vibrant {other}", "vibrant {other} {noun}", "vibrant {other} -{letter} {noun}", "vibrant {other} --{noun}", "vibrant {other} --{noun} {n}", "vibrant {other} {noun}.gguf", "vibrant {other} my {noun}", "vibrant {other} -{letter} {noun2} --{adj} {n}", "vibrant {other}?", "is there a vibrant {other}?", "what does vibrant {other} do?", "does vibrant {other} exist?", "{tool} {other} {noun}",
    "a {code} script", "{code} script", "write {code}", "write {code} code", "write a {code} program", "write me a {code} script for {noun}s", "a {code} function that {acts}", "{code} one-liner", "some {code}", "{code} code for a {noun}", "code this in {code}", "script in {code}", "do it in {code}", "write a small {code} script to {act}", "give me {code} code", "show me some {code}", "can you write {code}?", "can you program in {code}", "learn {code}", "{code} tutorial",
    "vibrant {verb} {noun}", "vibrant {verb} --{noun}", "vibrant {noun} -{letter} {noun2}", "vibrant {verb} my {noun}", "vibrant {noun}?", "vibrant {pseudo} {noun}.gguf", "vibrant {verb} {noun}.gguf", "is there a --{noun} flag", "is there a --{verb} flag", "is there a --{adj} option", "does it have --{pseudo}", "have you got a flag --{verb}", "any flag for {noun}s?", "any {noun} flag", "--{noun} {n}", "--{verb} {noun}", "--{adj}", "-{letter}{letter2}", "--{noun}-{noun2} {pseudo}", "/{noun}", "/{verb} {noun}", "/{pseudo}", "what's /{noun} {noun2}",
    "does Vibrant have {topic}?", "{topic} support?", "{noun} support?", "does it do {topic}?", "does it do {noun}s?", "can it {verb}?", "can it {act}?", "can it see {noun}s?", "can it hear {noun}s", "can it read {noun}s?", "is it good at {topic}?", "works with {tool}?", "{tool} plugin?", "{tool} integration", "on {tool}?", "{company} compatible?", "{company} {noun}?", "how much {noun} for {n}b", "which {noun} is best for {topic}", "{adj} decoding?", "{adj} sampling", "{noun} decoding?", "{noun} scaling", "{noun} files?", "{noun} mode?", "upgrade {noun}", "{noun} update?", "{noun} adapters?", "train on my {noun}s", "train it with {topic}", "finetune on {noun}s",
    "who made {tool}", "who made {lang}?", "who made {topic}?", "who wrote {tool}?", "who created {company}", "who built the {noun}?", "who makes {noun}s?", "where do {noun}s come from?", "where does {topic} come from?", "where was {person} made?", "will I be {adj}?", "will I be {most}?", "shall I be {adj} one day?", "will we be {adj}?", "{noun} news", "{country} news", "{topic}!", "latest {noun}", "the {noun} today", "{month} {year}", "sports", "music", "movies", "weather", "horoscope", "lyrics of {pseudo}", "results of the {event}",
])
FAMILIES.append([  # clipped, as one types to a search engine, of the world
    "{topic} price", "{city} weather", "{country} population", "best {noun} {year}", "{person} age", "{tool} download", "{company} stock", "{noun} near me", "{act} tutorial", "{tool} vs {tool2}", "{noun} meaning", "{topic} explained", "{person} quotes",
    "how 2 {act}", "wheres {city}", "whos {person}", "whats a {noun}", "whens {month} {day}", "hows {city}", "u like {topic}?", "do u {verb}", "can u {act}", "pls {act}", "gimme a {noun}", "wanna {verb}?", "lets {verb}", "im {adj}", "my {noun} hurts", "i need a {noun}",
    "tell me smth about {topic}", "wat is {topic}", "wats {topic}", "who tf is {person}", "y is the {noun} {adj}", "is {topic} real?", "any {noun} tips", "{topic} pls", "recommend {noun}", "{lang} for {noun}", "how many {noun}s in a {noun2}", "i hate {topic}", "i love {topic}",
])
FAMILIES.append([  # for another window: shells, databases, programs
    "cd", "cd ~", "cd -", "cd ../{noun}", "cd ../..", "cd {noun}", "cd {noun}/{noun2}", "ls ..", "ls -la", "pushd {noun}", "source {noun}.sh", "./{noun}.sh", "export {pseudo}={n}", "touch {noun}", "which {noun}", "man {noun}", "history | grep {noun}", "alias {letter}={noun}",
    "select {n};", "select {n2}", "select now();", "select {noun};", "select * from {noun}s;", "select count(*) from {noun}s", "update {noun}s set {noun2} = {n};", "delete from {noun}s;", "drop table {noun}s;", "insert into {noun}s values ({n});", "use {noun};", "show tables;",
    "import {noun} as {letter}{letter2}", "import {pseudo} as {letter}", "import {noun}.{noun2}", "from {noun} import {noun2}", "from {pseudo} import *", "import pandas as pd", "import torch", "import matplotlib.pyplot as plt", "#include <{noun}.h>", "using namespace {noun};",
    "require('{noun}')", "let {letter} = {n};", "const {noun} = {n}", "var {noun} {noun2}", "return {noun};", "x = {noun}({n})", "package {noun}", "public class {Noun}", "fn {noun}() {{}}", "print({noun})", "{noun}.{verb}()", "{noun}[{n}]",
])
FAMILIES.append([  # what other programs have, asked of this one
    "does it support {noun} layers", "does it support {topic}", "does it support {adj} layers?", "does it support {noun} models", "does Vibrant support {noun} generation?", "does Vibrant support {topic} generation", "{noun} generation?", "{topic} generation", "can it do {noun} generation?",
    "supports {noun} {noun2}?", "does Vibrant support {adj} {noun} layers?", "is there {noun} support", "{noun} layers?", "{adj} {noun} layers", "does it have {noun} mode", "{noun} mode?", "{adj} mode?", "does it handle {noun}s?", "is it {adj}-{noun}?", "multi-{noun}?", "bi{noun}?", "auto-{noun}?",
    "tensor.{Noun}2D", "tensor.{Noun}{d}D", "tensor.{Verb}{Noun}", "tensor.{Adj}{Noun}", "gpu.{Noun}{d}", "gpu.{Verb}{Noun}", "vb_{noun}_{d}d", "vb_{verb}_{noun}", "{noun} rag", "a {noun} agent", "{noun} function calling",
    "{digit} halved", "half of {digit}teen", "{digit} {noun}s halved", "{digit} doubled twice", "{month} {day}", "what's {month} {day}?", "what happened on {day}/{day2}", "what was on {day}/{day2}/{year}?", "the {day}th of {month}",
    "{noun} lol", "lol {noun}", "{noun} smh", "imo {noun}", "ngl {noun}", "fyi {noun}", "{noun} tbh", "{noun} omg",
])
FAMILIES.append([  # words, beyond what is done with them
    "What rhymes with {pseudo}?", "rhyme for {noun}", "an anagram of {noun}", "anagrams of {noun}", "Is {noun} a palindrome?", "How many syllables has {noun}?", "syllables of {noun}", "Count the vowels in {noun}", "how many vowels does {noun} have", "Write {noun} in capitals",
    "uppercase {noun}", "{noun} in upper case", "capitalize {noun} {noun2}", "pluralize {noun}", "the past tense of {verb}", "Is {noun} a noun?", "What is the longest word?", "a word that begins with {letter}", "words with {letter}", "unscramble {pseudo}", "a synonym of {adj}",
    "antonym of {adj}", "Use {noun} in a sentence", "correct this: {noun} {pseudo} {verb}", "is {noun} spelled right?", "how do you pronounce {noun}", "define {verb}", "join {noun} and {noun2}", "remove the vowels from {noun}", "the last word of {noun} {noun2} {noun3}",
    "alphabet", "say the alphabet", "What is the {n}th letter of the alphabet?", "put {noun} before {noun2}", "replace {letter} by {letter2} in {noun}", "hash of {noun}", "encode {noun} in base64", "morse code for {noun}",
])
FAMILIES.insert(0, [  # plain sentences of any words
    "Where does the {noun} {verb}?", "When will {name} {verb} the {noun}?", "Who did {verb} my {noun}?", "Which {noun} can {verb}?", "Why does {name} {verb}?", "How do I {verb} my {noun}?", "How do I {verb} a {noun}?", "Can a {noun} {verb}?", "What's the {most} {noun} in the world?",
    "What's the {most} {noun} of {country}?", "Who's the {most} person alive?", "Which is the {most} {noun}?", "What is the {most} {topic}?", "The {adj} {noun} is in the {noun2}.", "I have a {adj} {noun}", "My {noun} can {verb}", "{name} likes the {noun}", "the {adj} {noun}", "{noun} {noun2}",
    "Should we {verb} the {noun}?", "How long does a {noun} {verb}?", "How often do {noun}s {verb}?", "What happens when you {verb} a {noun}?", "Is it right to {verb} a {noun}?", "How many {noun}s does a {noun2} have?", "What would a {noun} say?", "How come {noun}s {verb}?", "Why do {noun}s {verb}?",
    "Name a {adj} {noun}", "Name the {most} {noun}", "Please recommend a good {noun}", "recommend some {topic}", "What's your opinion on {topic}?", "Do you believe in {topic}?", "What's your favorite {noun}?", "Who's your favorite person of {country}?", "Who {verb}s the {noun}?", "When does the {noun} {verb}?",
    "What's the name of {name}'s {noun}?", "What are the signs of {topic}?", "How much {topic} is too much?", "What's the chemical symbol of {noun}?", "What's the number of {name}?", "Was {person} a {noun}?", "Who was the first {noun} in {country}?", "Who was the first to {verb} a {noun}?", "What causes {topic}?",
    "Would you {verb} a {noun}?", "Could {name} {verb} in {city}?", "In which year did {person} {verb}?", "The {noun} didn't {verb}, what now?", "Where can one {verb} in {city}?", "Does {name} {verb} a {noun}?", "Tell me a fact about {topic}", "Read me a {noun}", "Explain the rules of {topic}",
])
FAMILIES.insert(1, [  # of the one who asks, of what will be, and sums beyond the rules
    "Will I {verb}?", "Will I ever {verb} a {noun}?", "Will {name} {verb} tomorrow?", "Am I {adj}?", "Am I {most}?", "Will my {noun} be {adj}?", "Which {noun} am I looking at?", "What {noun} do I have?", "What word did I forget?", "How many {noun}s do I own?", "What will {name} say?",
    "Which {noun} do I like?", "What am I going to {verb}?", "When will I {verb}?", "Why am I {adj}?", "Where did I put the {noun}?", "Who is the {role} of the {noun}?", "Who is the {role} of {company}?", "Who is the {role} of Vibrant?", "Who is {role} at Vibrant?", "Is there a {role} for Vibrant?",
    "Which {noun} is the right one?", "Which {topic} is the true one?", "What is going to happen to {name}?", "How will the {noun} be in {year}?", "What's {name} going to do?", "What was the {noun} like?", "How's the {noun} going to be?",     "Define {noun}", "Define {topic} in one sentence", "What is a {person} {noun}?", "What is a {city} {noun}?", "What's the newest {noun} of {company}?", "What's the latest {noun} of {tool}?", "How do I {verb} {noun}s in {tool}?", "How do I {verb} the {noun} in {tool}?",
    "Does Vibrant support {noun} {noun2}?", "Does Vibrant support {adj} {noun}s?", "Can Vibrant make a {noun}?", "Is Vibrant {adj}?", "How {adj} is Vibrant?",
])
ROLES = "owner president director chairman head manager secretary leader founder lawyer accountant captain mascot sponsor investor".split()
FAMILIES.insert(2, [  # words of the project in questions that it does not answer
    "Who invented {term}?", "When was {term} invented?", "Should I learn {term}?", "Should I learn {term} or {lang}?", "Is {term} better than {tool}?", "Which is better, {term} or {topic}?", "Is {term} hard to learn?", "How old is {term}?", "Write a poem about {term}", "What does {name} think about {term}?",
    "What is a {noun} {term}?", "What is the {noun} of {term}?", "Define {noun} {term}", "Why is {term} {adj}?", "Who is the {role} of {term}?", "How much is a {adj} {term}?", "Where can I buy {term}?", "Which {company} product has {term}?", "Which book about {term} is the {most}?", "What's the newest {term} of {company}?",
    "Did {name} see the {term}?", "Did you {verb} the {term}?", "How many {noun}s does {term} have?", "How many {noun}s are in {term}?", "How do I {verb} {term}?", "Who {verb}s the {term}?", "What color is {term}?", "Is {term} a {noun}?", "Was {person} good at {term}?", "history of {term}", "the {term} of {country}",
    "Translate {term} into {lang}", "How do you say {term} in {lang}?", "What's the {lang} word for {term}?", "what rhymes with {term}", "my {term} is {adj}", "I lost my {term}", "Who is the {role} of the Vibrant {noun}?", "Who is the {role} of the Vibrant project?", "What is the {noun} of the Vibrant project?",
])
TERMS = "Go|CUDA|GGUF|softmax|attention|kernel|GPU|Linux|tensor|graph|model|token|tokenizer|transformer|transform|prompt|template|cache|stream|pool|buffer|thread|batch|context|memory|layer|vector|matrix|precision|entropy|sampler|temperature|seed|argmax|word|text|device|driver|compiler|command|flag|error|Python|Windows|macOS|Ubuntu|Docker|C|Rust|Java|NVIDIA|AMD|Ollama|Hugging Face|llama.cpp|PyTorch".split("|")
VERBS = "eat drink sleep jump swim dance sing write read paint clean wash cook bake grow plant catch throw carry push pull open close find lose buy sell steal hide seek kiss hug marry meet visit leave forget remember teach learn play win fight kill cure break fix repair burn freeze melt boil cut fold tie climb fly drive ride sail walk wait wake dream think smell hear touch".split()
MOST = "fastest oldest largest smallest tallest deepest longest cheapest richest strongest heaviest hottest coldest best worst newest most famous|most expensive|most popular|prettiest|highest|strangest|youngest|loudest|rarest".replace(" most", "|most").split("|")
MOST = [w for m in MOST for w in (m.split() if not m.startswith("most ") else [m])]
SUFFIXES = "XL XXL XXS XS SS SX XM ML H Z LL T P3 9 MX V2 R4 K L2 NL".split()
FAKE_FORMATS = "Q1_K Q7_K Q9_K Q8_K Q10_K Q3_0 Q6_0 Q7_0 Q9_0 Q2_1 Q3_1 Q6_1 Q8_2 Q5_7 Q4_5 Q4_X Q5_Z Q6_W TQ3_0 TQ9_1 IQ9_XS IQ7_NL F64 F8 FP12 BF32 BF8 MXFP8 NVFP9 INT3 X4_K Z8_0".split()
FAMILIES.append([f"{q}" for q in (
    "How many bits does {fake} use?", "What is {fake}?", "What is the block size of {fake}?", "How many bytes is a block of {fake}?", "What is the type id of {fake}?", "How many bits per weight has {fake}?", "explain {fake}", "tell me about {fake}", "{fake}?", "How many weights are in a {fake} block?",
    "What does Err{Pseudo} mean?", "What does Err{Adj}{Noun} mean?", "How do I fix Err{Noun}?", "What is Err{Verb}?", "I get Err{Adj}", "What does vb_{verb} do?", "What is vb_{adj}_{noun}?", "What does --{verb} do?", "What does --{adj}-{noun} do?", "What is the flag --{pseudo} for?", "what does -{letter} do", "What does make {verb} do?",
    "What is make {adj}-{noun}?", "What does vibrant {verb} do?", "What is the command vibrant {noun}?", "What does /{verb} do?", "What is tensor.{Verb}?", "What does tensor.{Adj} do?", "What is gpu.{Verb}?", "How do I call {pseudo} in Go?", "How do I build for a {noun}?", "How do I build for {company}?", "Can I build it for my {noun}?",
    "What is the compute capability of {pseudo}?", "What is the compute capability of {company}?", "Does Vibrant run on a {noun}?", "Does Vibrant {verb}?", "Can Vibrant {verb} my {noun}?", "Is there a Vibrant {noun}?", "Where can I buy a Vibrant {noun}?", "What's the Vibrant {noun}?", "Who {verb}s Vibrant?", "How many {noun}s does Vibrant have?",
    "Does Vibrant have a {adj} {noun}?", "When will Vibrant {verb}?", "What's the formula of {topic}?", "What is {noun} in C?", "How many tokens does {person} have?", "Which model does {company} use?", "What's the license of {tool}?", "How do I quantize {topic}?", "How do I get {company} to build?", "what's the version of {tool}?")])
NEAR_FAMILIES = [f for f in FAMILIES if any("Vibrant" in q for q in f) and any("--{" in q or "vb_" in q for q in f)]
EVENTS = "French Revolution|First World War|Second World War|Cold War|moon landing|Civil War|battle of Waterloo|fall of Rome|gold rush|plague|industrial revolution|Titanic disaster|Renaissance|crusades|ice age|election|final|race|championship|Olympics".split("|")
COMPANIES = "Google|Apple|Microsoft|Amazon|Tesla|Toyota|Ikea|Nike|Samsung|Sony|Intel|IBM|Boeing|Airbus|Siemens|Nokia|Volvo|Lego|Disney|Netflix|Coca-Cola|OpenAI|Meta|Oracle|Adobe|Shell|Ford|BMW".split("|")
LANGS = "German French Spanish Italian Latin Greek Chinese Japanese Python Java Rust Perl Swedish Polish Turkish Arabic Hindi Dutch".split()
MONTHS = "January February March April May June July August September October November December".split()
ACTS = ["sorts a list", "counts words", "draws a circle", "sends mail", "plays music", "reads a file", "adds colors", "paints a wall", "parses dates", "prints a table", "makes coffee", "bakes bread"]
ADJ = "red blue green broken old new late wet cold hot big small slow loud empty round soft heavy".split()


class Filler(dict):
    """Draws the value of each field that a template names, once, and remembers the words drawn."""

    def __init__(self, rng):
        super().__init__()
        self.rng = rng

    def __missing__(self, key):
        value = self[key] = DRAWS[key.rstrip("23")](self.rng) if key.rstrip("23") in DRAWS else self.cased(key)
        return value

    def cased(self, key):
        return self[key.lower()].capitalize()


def nonsense(rng):
    while True:
        p = pseudo(rng)
        if len(p) > 2:
            return p


OTHER = "train finetune fine-tune learn teach merge convert quantize export import login logout upgrade update install uninstall init start restart sync search deploy publish eval generate translate summarize draw speak listen watch edit open close copy move clean reset config status logs".split()
CODE = "C++ C# Python Java Rust Perl Ruby JavaScript TypeScript Bash Haskell Lua Scala Kotlin Swift PHP Fortran COBOL Julia Erlang Lisp SQL HTML CSS PowerShell".split()

DRAWS = {
    "other": lambda r: r.choice(OTHER), "code": lambda r: r.choice(CODE),
    "country": lambda r: r.choice(COUNTRIES), "city": lambda r: r.choice(CITIES), "person": lambda r: r.choice(PEOPLE), "topic": lambda r: r.choice(TOPICS),
    "act": lambda r: r.choice(ACTIVITIES), "acts": lambda r: r.choice(ACTS), "tool": lambda r: r.choice(TOOLS), "noun": lambda r: r.choice(COMMON),
    "adj": lambda r: r.choice(ADJ), "pseudo": nonsense, "event": lambda r: r.choice(EVENTS), "year": lambda r: r.randrange(1000, 2030),
    "verb": lambda r: r.choice(VERBS), "most": lambda r: r.choice(MOST), "fake": lambda r: r.choice(FAKE_FORMATS) if r.random() < 0.4 else f"Q{r.randrange(2, 9)}_{r.choice('K01')}_{r.choice(SUFFIXES)}", "assistant": lambda r: r.choice(ASSISTANTS), "digit": lambda r: r.choice(DIGITS), "small": lambda r: r.choice(SMALL), "large": lambda r: r.choice(LARGE), "letter": lambda r: r.choice("abeghijklquwxyz"),
    "month": lambda r: r.choice(MONTHS), "day": lambda r: r.randrange(1, 29), "company": lambda r: r.choice(COMPANIES), "n": number,
    "mark": lambda r: r.choice("? ?? ??? ! . ... , ; : + - * / = # % & $ @ ~ ^ _ | \\ < > ( ) [ ] { } -- ** // && || >> << == != <3 :) ;) :( :D".split()),
    "d": lambda r: r.randrange(1, 10), "name": lambda r: r.choice(NAMES), "lang": lambda r: r.choice(LANGS), "role": lambda r: r.choice(ROLES), "term": lambda r: r.choice(TERMS), "near": lambda r: r.choice(NEAR),
}


AT_STAKE = ("term", "other", "code")  # fields of words that facts have too: it is the question around them that is declined


def unknown(rng, known=frozenset()):
    """A question to decline. known: words that name something the model knows; single words drawn are none of them."""
    while True:
        family = rng.choice(NEAR_FAMILIES) if rng.random() < 0.25 else rng.choice(FAMILIES)
        filler = Filler(rng)
        q = rng.choice(family).format_map(filler)
        if not any(str(v).lower() in known for k, v in filler.items() if not k.startswith(AT_STAKE)):
            return Turn(q, DECLINE, "unknown", ACCEPT)
