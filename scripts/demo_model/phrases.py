"""How people ask: carrier sentences for each kind of fact, synonyms, openings and small mistakes.

{x} is a name, {n} what such a thing is called (flag, command, ...), {v} a verb phrase.
"""

NOUNS = {
    "command": ["command", "subcommand"],
    "slash": ["command", "slash command", "chat command"],
    "flag": ["flag", "option", "switch", "parameter", "argument"],
    "target": ["target", "make target", "Makefile target", "build target"],
    "format": ["format", "type", "quantization", "quant", "weight format", "quantization format"],
    "op": ["operation", "op", "function", "kernel"],
    "error": ["error", "message", "error value"],
    "go": ["function", "Go function", "type", "method"],
    "c": ["function", "C function", "symbol"],
    "term": ["term", "word", "concept"],
    "fact": ["thing", "topic"],
}

WHAT = [  # about a name
    "What is {x}?", "What's {x}?", "what is {x}", "Explain {x}", "Explain {x} to me", "Tell me about {x}", "Can you explain {x}?", "What do you know about {x}?", "Describe {x}",
    "Define {x}", "{x}?", "{x}", "What is meant by {x}?", "I don't understand {x}", "What exactly is {x}?", "Could you tell me what {x} is?", "Do you know what {x} is?",
    "Give me a short explanation of {x}", "In short, what is {x}?", "What does {x} mean?", "Tell me something about {x}", "I want to know about {x}", "meaning of {x}", "info on {x}",
    "What should I know about {x}?", "Can you tell me about {x}?", "please explain {x}", "I have a question about {x}", "What can you tell me about {x}?", "what is {x} all about?",
    "Help me understand {x}", "{x}: what is that?", "What are {x}?", "definition of {x}", "how would you describe {x}?", "say something about {x}", "I read about {x}, what is it?",
    "Teach me about {x}", "explain what {x} is", "what is this {x}?", "details on {x}", "could you explain what {x} means", "I came across {x}. What is it?", "give me details about {x}",
    "What would {x} be?", "So what is {x}?", "What might {x} be?", "What's {x} about?", "What's the deal with {x}?", "{x}, what is that?",
    "what's the idea behind {x}?", "What's the story of {x}?", "Ever heard of {x}?", "Is {x} something I should know?", "What sort of thing is {x}?",
    "Could you describe {x}?", "Would you explain {x}?", "I've heard of {x}, what is it?", "someone told me about {x}", "Break down {x} for me", "{x} in a sentence",
    "What do people mean by {x}?", "in simple words: {x}", "What does one call {x}?", "Mind explaining {x}?", "What do I have to know about {x}?",
    "Can you describe what {x} is?", "remind me what {x} is", "{x} please", "a few words on {x}", "Let me know what {x} is", "give me an idea of {x}",
    "what's meant by {x}?", "I keep reading about {x}", "{x} in a nutshell", "in a nutshell, what is {x}?", "{x} in two words", "{x}, explain", "{x} explained", "{x}, in short?", "the meaning of {x}, please", "what do you call {x}?",
    "what am I to understand by {x}?", "quick summary of {x}", "summarize {x}", "what kind of thing is {x}?", "{x} -- what's that", "about {x}", "I'd like a summary of {x}",
]
WHAT_DOES = [  # about a name that does something
    "What does {x} do?", "What is {x} for?", "What is {x} used for?", "When do I use {x}?", "Why would I use {x}?", "What can I do with {x}?", "What is the purpose of {x}?", "purpose of {x}",
    "What does the {n} {x} do?", "What is the {n} {x} for?", "Explain the {n} {x}", "What happens when I use {x}?", "What is the use of {x}?", "what do I need {x} for?", "What effect has {x}?",
    "How does {x} work?", "What does {x} change?", "What is the point of {x}?", "{x} does what?", "Tell me what {x} does", "I want to know what {x} does", "what's the {n} {x}", "the {n} {x}?",
    "can you tell me what {x} does?", "what will {x} do?", "When is {x} useful?", "What is the meaning of the {n} {x}?", "what does using {x} do?", "Describe what {x} does", "what good is {x}?",
    "How do I use {x}?", "how is {x} used?", "when should I use {x}?", "What is {x} good for?", "tell me about the {n} {x}", "What is the job of {x}?",
    "What would {x} do?", "What's {x} good for?", "Why is there {x}?", "What's the {n} {x} good for?", "What is {x} there for?", "what's {x} doing?",
    "What role does {x} have?", "What would I use {x} for?", "Why should I use {x}?", "In which case do I need {x}?", "what does one use {x} for?",
    "Which effect does {x} have?", "what's the reason for {x}?", "What changes when I use {x}?", "How would I use {x}?", "who needs {x}?",
    "Could you say what {x} does?", "What comes out of {x}?", "what am I supposed to do with {x}?", "I saw {x}, what does it do?", "what do you use {x} for?",
    "Is {x} useful?", "{x}: what does it do?", "{x}, what for?", "{x} does?", "what {x} does", "why {x}?", "use of {x}", "effect of {x}", "what do I get from {x}?", "what happens with {x}?", "what will happen with {x}", "{x} - when do I need it?",
]
HOW = [  # about a verb phrase
    "How do I {v}?", "How can I {v}?", "how to {v}", "How to {v}?", "I want to {v}", "I'd like to {v}", "I need to {v}", "Tell me how to {v}", "What is the way to {v}?", "Show me how to {v}",
    "Can I {v}?", "Is it possible to {v}?", "Is there a way to {v}?", "What do I do to {v}?", "What should I do to {v}?", "How would I {v}?", "How does one {v}?", "explain how to {v}", "{v}",
    "What do I type to {v}?", "What must I do to {v}?", "Help me {v}", "What is the best way to {v}?", "I would like to {v}. How?", "I want to {v}, how?", "Could you tell me how to {v}?",
    "Can you tell me how to {v}?", "Do you know how to {v}?", "how should I {v}?", "I am trying to {v}", "Can you help me {v}?", "what's the easiest way to {v}?",
    "how could I {v}?", "I have to {v}", "give me the steps to {v}", "how do you {v}?", "How do we {v}?", "we want to {v}", "my goal is to {v}", "I can't figure out how to {v}",
    "how might I {v}?", "steps to {v}", "I would love to {v}", "what would I enter to {v}?", "quickest way to {v}", "instructions to {v}",
    "In which way can I {v}?", "What would I have to do to {v}?", "What's the trick to {v}?", "Any way to {v}?", "Any idea how to {v}?", "Suppose I want to {v}",
    "If I want to {v}, what do I type?", "What's the simplest way to {v}?", "What does it take to {v}?", "Say I want to {v}", "Remind me how to {v}",
    "Could you please show me how to {v}?", "Would you explain how to {v}?", "I'm looking for a way to {v}", "I was wondering how to {v}", "Let me know how to {v}",
    "Walk me through how to {v}", "I wish to {v}", "It would be nice to {v}", "How on earth do I {v}?", "What's the proper way to {v}?", "What's the right way to {v}?",
    "Please {v}", "Now {v}", "Let's {v}", "{v}, please", "How could one {v}?", "How might one {v}?", "how would somebody {v}?", "My boss wants me to {v}",
    "Someone asked me to {v}", "what if I want to {v}?", "How am I supposed to {v}?", "What do you do to {v}?", "I've been trying to {v}", "is there any way to {v}?",
    "Would it be possible to {v}?", "How can we {v}?", "could I {v}?", "what's the method to {v}?", "I intend to {v}", "How did you {v}?", "am I able to {v}?",
    "what are the steps to {v}?", "What's needed so that I can {v}?", "Which steps let me {v}?", "Do you happen to know how to {v}?", "How would I go about {g}?",
    "Any tips for {g}?", "What about {g}?", "I have trouble {g}", "Is {g} possible?", "What is involved in {g}?", "Is there support for {g}?", "I'm {g}, what do I do?",
    "Tell me about {g}", "{g}: how does it go?", "help with {g}", "A hint for {g}, please", "{g}", "I failed at {g}", "How does {g} work?", "Describe {g}",
    "the way of {g}", "{v} how", "{v}, how?", "{v} how?", "{v}?", "{g}?", "{g} how", "can i {v}", "could it {v}?", "can it {v}?", "can vibrant {v}?", "does it let me {v}?", "need to {v}", "want to {v}", "trying to {v}", "{v} pls", "pls {v}", "would like to {v}", "what's needed to {v}?",
    "how do I go about {g}", "is there something to {v}?", "{v} - is that possible?", "wanna {v}", "gotta {v}", "{v} in vibrant", "{v} with vibrant", "what lets me {v}?", "what do people type to {v}?",
]
HOW_WITH = [  # about a verb phrase, asking for a kind of thing
    "Which {n} lets me {v}?", "What {n} do I use to {v}?", "Which {n} do I need to {v}?", "Is there a {n} to {v}?", "What is the {n} to {v}?", "With which {n} can I {v}?", "the {n} to {v}",
    "I need a {n} to {v}", "Which {n} should I use to {v}?", "Give me the {n} to {v}", "What's the {n} to {v}?", "Do you have a {n} to {v}?", "Name the {n} to {v}", "which {n} is there to {v}?",
    "What {n} would let me {v}?", "Is there any {n} that lets me {v}?", "Which {n} would you use to {v}?", "What's the name of the {n} to {v}?",
    "Which {n} is right to {v}?", "By which {n} do I {v}?", "Which {n} is for {g}?", "What's the {n} for {g}?", "the {n} for {g}?", "I forgot the {n} to {v}",
    "Which {n} exists for {g}?", "Tell me the {n} to {v}", "Which {n} makes it possible to {v}?",
    "{v}, which {n}?", "{v}: which {n}?", "which {n} to {v}", "what {n} to {v}", "{n} to {v}", "{n} for {g}", "{v} {n}?", "{g} {n}?", "is there a {n} for {g}?", "with what {n} do I {v}?", "which {n} says to {v}?", "name of the {n} to {v}?", "{n} that lets me {v}",
]
EXAMPLE = [
    "Give me an example of {x}", "Show me an example of {x}", "How do I call {x}?", "An example of {x}, please", "example for {x}", "Can you show me how {x} is used?", "Show me how to write {x}",
    "What does a call of {x} look like?", "Do you have an example of {x}?", "usage of {x}", "syntax of {x}", "What is the syntax of {x}?", "How do I write {x}?", "show {x} in use", "an example with {x}",
    "Could I see an example of {x}?", "How would I type {x}?", "Let me see {x} in an example", "how would one write {x}?", "a sample of {x}, please",
    "give an example for {x}", "What would a typical {x} look like?", "I'd like an example of {x}", "demonstrate {x}", "How is {x} written?",
]

# Attributes of formats, GPUs, operations and errors.
BITS = ["How many bits does {x} use?", "How many bits per weight has {x}?", "How many bits is {x}?", "What is the bit width of {x}?", "bits per weight of {x}", "bits of {x}", "How large is a weight in {x}?",
        "How many bits a weight does {x} take?", "How many bits does a weight take in {x}?", "{x} bits", "How compact is {x}?", "bpw of {x}", "What are the bits per weight of {x}?", "How many bits has {x}?",
        "number of bits in {x}", "how many bits does {x} need per weight?", "how many bits are in a {x} weight?", "How small is {x}?",
    "How many bits would a weight of {x} have?", "What's the number of bits in {x}?", "In {x}, how many bits is one weight?",
    "How many bits do I need for a weight in {x}?", "{x}: how many bits?", "Tell me the bits of {x}", "With {x}, how many bits per weight?",
    "what's the bit count of {x}?", "how heavy is one weight in {x}, in bits?",
]
BLOCK = ["What is the block size of {x}?", "How many weights are in a block of {x}?", "block size of {x}", "How large is a block of {x}?", "How many weights has a {x} block?", "How big are the blocks of {x}?",
         "How many values are in one {x} block?", "How many elements does a block of {x} hold?", "{x} block size", "How many weights does {x} put in a block?", "elements per block in {x}", "what block size does {x} use?",
    "What's the block length of {x}?", "In {x}, how many weights form a block?", "How many weights are grouped in {x}?", "{x} groups how many weights?",
    "Tell me the block size of {x}", "How long is a block in {x}?", "How many weights share one block in {x}?", "With {x}, how big is a block?",
]
BYTES = ["How many bytes is a block of {x}?", "How many bytes does a {x} block take?", "bytes per block of {x}", "How many bytes has a block of {x}?", "What is the byte size of a {x} block?", "{x} bytes per block",
         "How many bytes are in a {x} block?", "how many bytes does one block of {x} need?", "size of a {x} block in bytes", "What does a block of {x} take in bytes?",
    "In bytes, how big is a {x} block?", "Tell me the bytes of a {x} block", "How many bytes would a {x} block need?", "What's the size of one {x} block in bytes?",
    "A block of {x} is how many bytes?", "how many bytes for one block of {x}",
]
TYPE_ID = ["What is the type id of {x}?", "What is ggml's id of {x}?", "Which type id has {x}?", "ggml type id of {x}", "What number is {x} in ggml?", "id of {x}", "Which number has the type {x}?", "type number of {x}", "What is the value of VB_{x}?",
    "Tell me the id of {x}", "{x} has which id?", "What's the ggml number of {x}?", "Under which id is {x} stored?", "What's {x}'s type id?",
]
CC = ["What is the compute capability of {x}?", "Which compute capability has {x}?", "compute capability of {x}", "Which sm version is {x}?", "What architecture number has {x}?", "{x} compute capability", "Which CUDA_ARCH is {x}?",
      "What CUDA_ARCH does {x} need?", "What is the sm version of {x}?", "sm of {x}", "Which architecture is {x}?", "which CUDA architecture does {x} have?",
    "Tell me the compute capability of {x}", "What's the sm version of {x}?", "{x} has which compute capability?", "Do you know the compute capability of {x}?",
    "which capability does {x} have?", "sm number of {x}", "what's the architecture of {x}?", "the sm of {x}, please",
]
BUILD_FOR = ["How do I build for {x}?", "How do I compile for {x}?", "How can I build Vibrant for {x}?", "Build for {x}", "I have {x}, how do I build?", "Which target builds for {x}?", "What do I run to build for {x}?", "build on {x}",
             "Which make target is for {x}?", "How do I build it for {x}?", "I want to build for {x}", "make target for {x}", "Which command builds for {x}?", "How do I get a build for {x}?", "compile for {x}", "my card is {x}, what do I build?",
             "How do I make it run on {x}?", "Does Vibrant run on {x}?", "Is {x} supported?", "Can I use {x}?", "Does it support {x}?", "I own {x}. How do I compile Vibrant?", "how to build for {x}", "which build do I need for {x}?",
             "I use {x}. What do I type to build?", "what is the build command for {x}?", "Will Vibrant work on {x}?", "I have {x}", "how do I compile Vibrant on {x}?", "my GPU is {x}, how do I build?", "target for {x}?",
    "I've got {x}. Which build?", "What's the build command for {x}?", "What would I run for {x}?", "I'm on {x}, how do I compile?", "My machine has {x}, what now?",
    "There's {x} in my computer. How do I build?", "Which make target suits {x}?", "Compiling for {x}, how?", "building for {x}", "How should I compile for {x}?",
    "What do I type to target {x}?", "We have {x} here. What do we build?", "how would I target {x}?", "Got {x}, which target?", "I bought {x}, how do I build for it?",
    "What do I call on {x}?", "Which build fits {x}?", "I need a binary for {x}", "produce a build for {x}", "how could {x} be used?",
    "our server has {x}, which build?",
]
TOOLKIT = ["Which CUDA toolkit does {x} need?", "Which CUDA version do I need for {x}?", "What toolkit is needed for {x}?", "Which CUDA for {x}?", "CUDA version for {x}", "Which nvcc do I need for {x}?", "toolkit for {x}",
           "Does {x} need an older CUDA?", "Which CUDA works with {x}?", "What CUDA version does {x} need?", "which version of the toolkit supports {x}?",
    "{x} wants which CUDA version?", "What's the right CUDA version for {x}?", "Which releases of CUDA still support {x}?", "Which CUDA do I install for {x}?",
    "What version of CUDA runs on {x}?", "is CUDA 13 fine for {x}?", "which CUDA release is right for {x}",
]
FORMULA = ["What is the formula of {x}?", "formula of {x}", "Give me the formula for {x}", "What does {x} compute?", "How is {x} defined?", "How is {x} computed?", "Write the formula of {x}", "What is {x} mathematically?",
           "equation of {x}", "How do you compute {x}?", "What does {x} calculate?", "math of {x}", "What is the equation for {x}?", "how do I compute {x} by hand?", "{x} formula", "the math behind {x}", "show me the formula of {x}", "How does one calculate {x}?",
    "How's {x} calculated?", "What's the math of {x}?", "Tell me the equation of {x}", "What's the formula behind {x}?", "How would I calculate {x}?",
    "{x} as a formula", "{x} as an equation", "Write down {x}", "What would {x} compute?", "Could you give me the formula of {x}?", "how does {x} go mathematically?",
    "What's the definition of {x} in symbols?", "What's the expression for {x}?", "In math, what is {x}?",
]
IN_GO = ["How do I call {x} in Go?", "What is {x} in Go?", "{x} in Go", "Which Go function is {x}?", "How do I compute {x} in Go?", "What is the Go name of {x}?", "Go call of {x}", "How do I use {x} from Go?", "Which function of tensor does {x}?", "Go function for {x}",
    "How would {x} be called in Go?", "What's the Go function for {x}?", "Calling {x} from Go", "{x} from Go?", "Go code for {x}", "What do I write in Go for {x}?",
    "how does {x} look in Go?", "the Go side of {x}",
]
IN_C = ["How do I call {x} in C?", "What is {x} in C?", "{x} in C", "Which C function is {x}?", "How do I compute {x} in C?", "What is the C name of {x}?", "C call of {x}", "How do I use {x} from C?", "signature of {x} in C", "C function for {x}", "What are the arguments of {x} in C?",
    "How would {x} be called in C?", "What's the C function for {x}?", "Calling {x} from C", "{x} from C?", "C code for {x}", "What do I write in C for {x}?",
    "how does {x} look in C?", "Which arguments has {x} in C?", "the C signature of {x}", "what's the C call of {x}",
]
FIX = ["How do I fix {x}?", "What do I do about {x}?", "What can I do against {x}?", "How do I solve {x}?", "I get {x}, what now?", "What helps against {x}?", "remedy for {x}", "How do I get rid of {x}?", "I got {x}. What should I do?",
       "Vibrant says {x}, what do I do?", "fix for {x}", "How can I avoid {x}?", "I see {x}, how do I fix it?", "It fails with {x}", "It ends with {x}", "what is the solution to {x}?", "how do I repair {x}?", "My program returns {x}. How do I fix that?",
       "What should I do when I get {x}?", "how to resolve {x}", "Vibrant stops with {x}", "I keep getting {x}", "I have the problem: {x}", "What is the remedy for {x}?", "chat fails with {x}", "help, {x}!",
    "How could I solve {x}?", "Any remedy for {x}?", "What can be done about {x}?", "I ran into {x}", "What should I try against {x}?", "How can {x} be fixed?",
    "how can I recover from {x}?", "Got {x}, help!", "What would fix {x}?", "It tells me {x}, what should I try?", "How to deal with {x}?", "what to do about {x}",
    "Any idea how to fix {x}?", "My chat died with {x}. What now?", "How do I handle {x}?", "I'm getting {x} all the time", "there is {x}, how do I go on?",
    "how would you fix {x}?", "Can {x} be avoided?", "Do you know how to solve {x}?",
]
MEANS = ["What does {x} mean?", "What is {x}?", "Why do I get {x}?", "When does {x} happen?", "What causes {x}?", "Explain {x}", "What is the cause of {x}?", "meaning of {x}", "When do I get {x}?", "what does the error {x} mean?", "Why does {x} occur?",
         "the error {x}", "Tell me about {x}", "What is the reason for {x}?", "explain the error {x}", "{x}", "{x}?", "when is {x} returned?", "what is wrong when I see {x}?", "How does {x} come about?", "what leads to {x}?", "where does {x} come from?",
    "What's the meaning of {x}?", "What would {x} mean?", "Where does {x} come from?", "What's behind {x}?", "Why would I see {x}?", "In which case is {x} returned?",
    "When would I get {x}?", "What is {x} trying to tell me?", "What does {x} tell me?", "What's {x} supposed to mean?", "how come I get {x}?",
    "Which situation gives {x}?", "I don't understand {x}", "What went wrong when I see {x}?", "describe {x}", "what kind of error is {x}?", "So what is {x}?",
    "What's the reason behind {x}?",
]
STATUS = ["Which status code is {x} in C?", "What is the C status of {x}?", "{x} in C", "Which status is {x} in C?", "What is {x} called in C?", "C status code of {x}", "Which vb_status belongs to {x}?", "number of the status {x}", "Which value of vb_status is {x}?",
    "What's {x} as a C status?", "Which C code matches {x}?", "And which status is {x}?", "the C name of {x}", "In C, what is {x}?",
]

# Questions that go on about the thing of the last turn.
IT = {
    "example": ["Give me an example", "Can you show an example?", "An example, please", "Show me an example", "How do I use it?", "For example?", "And an example?", "what does that look like?", "example?", "How do I write that?"],
    "bits": ["How many bits does it use?", "And its bits per weight?", "How many bits has it?", "How many bits is that?", "bits per weight?", "And how many bits?"],
    "block": ["What is its block size?", "And its block size?", "How many weights are in a block?", "How large are its blocks?", "block size?", "And the block size?"],
    "bytes": ["How many bytes is a block?", "And in bytes?", "How many bytes has its block?", "bytes per block?", "And how many bytes is that?", "how many bytes does its block take?"],
    "id": ["What is its type id?", "And its id?", "Which id does it have?", "And its type id?", "its number in ggml?"],
    "what": ["What is it?", "Tell me more about it", "Explain it", "What is that?", "And what is it?", "what does it mean?", "what is that exactly?"],
    "cc": ["And its compute capability?", "What is its compute capability?", "Which compute capability has it?", "compute capability?", "Which architecture is that?"],
    "build": ["How do I build for it?", "And how do I build for it?", "Which target is that?", "How do I compile for that?", "And the build?", "What do I run for it?"],
    "toolkit": ["Which CUDA does it need?", "Which toolkit does it need?", "And which CUDA version?", "What toolkit is needed?", "Does it need an older CUDA?"],
    "formula": ["What is its formula?", "And the formula?", "Give me its formula", "What does it compute?", "How is it computed?", "formula?", "how is it defined?"],
    "go": ["How do I call it in Go?", "And in Go?", "What is it in Go?", "in Go?", "How do I use it from Go?", "Which Go function is it?"],
    "c": ["How do I call it in C?", "And in C?", "What is it in C?", "in C?", "How do I use it from C?", "Which C function is it?"],
    "fix": ["How do I fix it?", "What can I do?", "What do I do then?", "And how do I fix that?", "How do I solve it?", "What helps?", "what now?", "And the remedy?", "What should I do?", "How do I get rid of it?"],
    "means": ["What does it mean?", "Why do I get it?", "What is the cause?", "why?", "What causes it?", "When does it happen?", "And what does that mean?"],
    "status": ["And in C?", "What is it in C?", "Which status is it in C?", "And its C status?"],
}
AND = ["And {x}?", "What about {x}?", "And for {x}?", "and {x}", "How about {x}?", "And of {x}?", "Now {x}", "The same for {x}?", "and what about {x}?", "{x}?",
    "ok, and {x}?", "Ok and {x}", "so {x}?", "{x} then?", "alright, and {x}?", "and if it is {x}?", "And with {x}?", "ok and for {x}?", "What of {x}?",
    "fine, and {x}?", "and {x} then?", "And that of {x}?", "good, and {x}?",
]

SYNONYMS = [
    ("What is", ["whats", "what s", "wats", "wat is"]), ("What's", ["whats", "wots"]), ("How do I", ["how do i", "how to", "hwo do i", "how 2"]), ("Can you", ["can u", "could u"]), ("Could you", ["could u"]), ("you", ["u"]), ("are", ["r"]), ("please", ["pls", "plz"]), ("Please", ["pls", "plz"]),
    ("I'm", ["im"]), ("don't", ["dont"]), ("doesn't", ["doesnt"]), ("can't", ["cant"]), ("Where is", ["wheres"]), ("How's", ["hows"]), ("I want to", ["i wanna"]), ("give me", ["gimme"]), ("with", ["w/"]), ("about", ["abt"]), ("something", ["smth"]), ("because", ["cuz"]), ("context", ["ctx"]), ("temperature", ["temp"]), ("parameters", ["params"]), ("conversation", ["convo"]), ("memory", ["mem"]),
    ("How do I", ["In what way do I", "how'd I", "How can one", "how do people", "How does a user", "How might I"]), ("Can I", ["Could I", "May I", "Am I able to"]), ("Is there", ["Do you have", "Does Vibrant have", "Have you got", "Are there"]),
    ("I want", ["I would like", "I wish", "I'd love", "we'd like"]), ("What is", ["What would be", "what might be", "so what is"]), ("Does", ["Will", "Would", "does"]), ("Is", ["Would", "is"]), ("are", ["would be"]),
    ("What does", ["What would", "what will", "What did"]), ("tell me", ["show me", "let me know"]), ("explain", ["describe", "clarify"]), ("several", ["multiple", "many", "two"]), ("message", ["text", "prompt"]), ("graphics", ["video"]),
    ("happens", ["will happen", "occurs"]), ("different", ["other", "another"]), ("my", ["our", "the", "this"]), ("a model", ["some model", "the model", "an LLM"]), ("quit", ["leave", "exit"]), ("possible", ["doable", "feasible", "ok"]),
    ("always", ["every time"]), ("speed", ["performance", "throughput"]), ("size", ["length", "extent"]), ("folder", ["directory"]), ("folders", ["directories"]), ("written", ["coded"]), ("source", ["sources"]), ("tests", ["test suite", "checks"]),
    ("board", ["device", "module"]), ("card", ["GPU", "graphics card"]), ("toolkit", ["SDK"]), ("lets me", ["allows me to", "makes me"]), ("without", ["with no", "lacking"]), ("parts", ["pieces", "components"]), ("kinds", ["types", "sorts"]), ("kind", ["sort", "type"]),  # (word, others): replaced now and then, whole words
    ("How do I", ["How can I", "how would I", "How should I", "how do you", "how could I", "How may I"]), ("What is", ["What's", "whats", "what exactly is"]), ("Which", ["What"]), ("Tell me", ["Say", "Let me know"]),
    ("compile", ["build"]), ("build", ["compile"]), ("GPU", ["graphics card", "gpu", "video card", "NVIDIA GPU"]), ("GPUs", ["graphics cards", "gpus", "cards"]), ("model", ["LLM", "language model"]), ("models", ["LLMs"]),
    ("answer", ["reply", "response"]), ("answers", ["replies", "responses"]), ("set", ["change", "choose", "adjust", "specify"]), ("change", ["set", "modify"]), ("stop", ["halt", "end"]), ("leave", ["quit", "exit"]),
    ("see", ["view", "find out", "look at", "display"]), ("show", ["display", "print", "list"]), ("list", ["show", "name", "print"]), ("measure", ["test", "determine", "check", "find"]), ("get", ["obtain", "have"]),
    ("use", ["employ", "work with", "take"]), ("make", ["create"]), ("start", ["begin", "launch", "run"]), ("begin", ["start"]), ("need", ["require", "want"]), ("needed", ["required", "necessary"]), ("required", ["needed", "necessary"]),
    ("supported", ["available", "possible", "allowed"]), ("fast", ["quick", "speedy"]), ("load", ["open", "read", "use"]), ("file", ["document"]), ("text", ["string", "document"]), ("error", ["problem", "failure"]), ("flag", ["option", "switch"]),
    ("flags", ["options", "switches", "parameters"]), ("command", ["program", "tool"]), ("conversation", ["chat", "dialogue", "discussion", "talk"]), ("chat", ["conversation", "discussion", "talk"]), ("save", ["store", "keep", "write down"]), ("bring back", ["reopen", "restore"]), ("restore", ["bring back", "get back"]), ("question", ["prompt", "query", "message"]),
    ("correct", ["fix", "change"]), ("divide", ["split"]), ("split", ["divide", "spread"]), ("measure", ["time"]), ("quality", ["goodness"]), ("adapter", ["LoRA"]), ("layers", ["blocks"]), ("several", ["multiple", "more than one", "2"]), ("hosts", ["machines", "nodes", "computers"]), ("quantization", ["quant"]), ("quantizations", ["quants"]), ("graphics card", ["gpu"]), ("download", ["fetch", "get"]), ("supported", ["working"]), ("function", ["call", "routine"]), ("tensor", ["array"]), ("machine", ["computer"]),
    ("memory", ["RAM"]), ("VRAM", ["GPU memory", "video memory"]), ("choose", ["select", "pick"]), ("pick", ["choose", "select"]), ("check", ["verify", "test"]), ("run", ["execute", "start"]), ("print", ["output", "show"]),
    ("install", ["set up"]), ("remove", ["delete"]), ("big", ["large"]), ("large", ["big"]), ("purpose", ["goal", "point"]), ("program", ["application", "software"]), ("second", ["other"]), ("whole", ["entire"]),
    ("shorter", ["briefer"]), ("limit", ["restrict", "cap"]), ("create", ["make"]), ("write", ["put"]), ("give", ["pass", "provide"]), ("works", ["functions"]), ("do I get", ["do I receive"]), ("talk", ["speak"]), ("Vibrant", ["vibrant", "this tool"]),
]
OPENINGS = [
    "Please: ", "Hi, ", "Hey, ", "Hello! ", "One question: ", "Quick question: ", "Excuse me, ", "I wonder: ", "Okay, ", "So, ", "Well, ", "Now ", "Next question: ", "Another question: ", "I am new here. ", "Thanks. ", "Good. ", "Hmm, ", "By the way, ",
    "Tell me, ", "And ", "But ", "Sorry, ", "One more thing: ", "Then ", "also, ", "Great! ", "ah ok. ", "Just curious: ", "Please tell me: ", "I'm stuck. ", "I need help: ", "I use Linux. ", "I'm a beginner. ", "For my project: ", "Let me ask: ", "question: ", "ok so ", "um, ", "first, ",
    "Actually, ", "Maybe you know: ", "Listen, ", "A question about this: ", "My friend asks: ", "Just a moment. ", "Say, ", "So tell me, ", "Right, ", "Dear model, ",
    "As a newcomer: ", "Alright, ", "Fine. ", "Interesting. ", "Before I go: ", "Oh, ", "Honestly, ", "To be clear: ", "Let's see: ", "In general, ", "Hi again. ",
    "Good to know. ", "For a friend: ", "I forgot: ", "Assume I know nothing. ", "Out of curiosity: ", "Anyway, ", "I've read the README. ", "On my laptop: ",
    "At work we ask: ", "ok thanks. ", "got it. ", "yes, ", "no, ", "wait, ",
]
ENDINGS = [", please", " please", ", thanks", " thanks", "?", "!", "??", " ...", ", can you tell me?", " exactly?", ", briefly", " in Vibrant?", " with Vibrant", " in vibrant", " with vibrant?", " here?", " again?", " now?", ", do you know?", " in short", " then?",
    ", if I may ask?", " though?", ", roughly?", " actually?", ", you know?", " for me", " or not?", ", in one sentence", " these days?", " - any idea?", ", I wonder",
    " on Linux?", " on my machine?", " at all?", ", or what?",
]
FILLERS = "the a an of to is do does for i me my in with on can you please it that this are".split()

CLIPPED = set(FILLERS) | set("how what which where when there would could should want need tell show know have be am was so and its your about any some get way know will what's how's let's explain give".split())

SYSTEMS = ["You are a helpful assistant.", "Answer briefly.", "You are Vibrant's assistant.", "Be kind.", "You are an expert of GPUs.", "Answer in one sentence.", "You are a calculator.", "Be precise.", "You help people to use Vibrant."]
