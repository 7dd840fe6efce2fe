"""Word lists for spelling, sorting and small talk, and for the questions that the model must decline."""

COMMON = """
able about above accept across action active actor address advice afraid after again agree airport album almost alone along
already always amount anchor angle animal ankle answer apple apron april arch area arm army arrow artist aunt autumn
average awake award baby back bacon badge bag bake ball banana band bank barn basket bath battery beach bean bear beauty bed bee
begin behind bell below belt bench berry better between bicycle big bird biscuit bitter black blanket blue board boat body bone book
boot border bottle bottom bowl box boy brain branch brave bread break breakfast brick bridge bright bring broken brother brown brush
bubble bucket build burn bus bush butter button cabin cable cake calm camera camp candle candy canyon car card carpet carrot carry
castle cat catch cause cave ceiling center chain chair chalk change cheap check cheese cherry chicken child choice circle city clay clean
clear clever climb clock cloth cloud clown coach coast coat coconut coffee coin cold color comb common cook cookie copper corn corner
cotton couch count country cousin cover cow crab cream cricket cross crowd crown cup curtain curve dance danger dark daughter dawn day
deep deer degree desert desk dinner dirty dish doctor dog doll dolphin donkey door double dragon draw dream dress drink drive drum dry
duck dust eager eagle early earth east easy eat edge egg eight elbow elephant eleven empty engine enjoy enter equal evening every
example exit eye face fact fall family famous farm fast father feather fence field fig finger finish fire fish five flag flame flat
floor flour flower flute fly fog follow food foot forest fork forty fox frame free fresh friend frog front fruit funny garden garlic gate
gentle giant gift giraffe girl give glad glass globe glove goal goat gold good goose grain grape grass gray great green ground group grow
guard guess guest guitar hair half hammer hand happy harbor hard harvest hat hawk hazel head heart heavy hedge height hello help hen
herb hero high hill hobby hold hole holiday home honest honey hope horse hotel hour house human hundred hungry hurry ice idea inside iron
island ivory jacket jam jar jelly jewel job join joke journey juice jump jungle just keep kernel kettle key kind king kitchen kite kitten
knee knife knot ladder lady lake lamb lamp language large last late laugh lawn lazy leaf learn leather leave left lemon length lesson
letter level library light lily line lion list listen little lizard log long look loud love low lucky lunch machine magic make mango map
maple marble march market mask match matrix matter meadow meal measure meat medal melon memory metal middle milk mind mint minute mirror
model moment money monkey month moon morning mother motor mountain mouse mouth movie mud muscle museum mushroom music nail name narrow
nation nature near neck needle nephew nest never new night nine noise noon north nose note number nurse oak oat object ocean office oil
olive onion open orange orchard orchestra order otter outside oval oven owl ox oyster page paint pair palace palm panda paper parade
parent park parrot party path peach peanut pear pearl pen pencil penguin people pepper perfect person phone photo piano picnic picture pie
pig pigeon pillow pilot pine pink pipe planet plant plate play plum pocket poem point pond pony popcorn potato pound powder present
pretty price prince program proud pudding pumpkin pupil puppy purple puzzle quarter queen question quick quiet quilt rabbit race radio
rain raisin ranch rapid raven reach read ready real record red repeat rest rice ride right ring river road robin robot rock roof room root
rope rose round row ruby ruler run sad saddle safe sail salad salmon salt sand sauce sausage school science scissors sea season seat
second secret seed seven shade shadow shape share sharp sheep shelf shell shine ship shirt shoe short shoulder shower silver simple sing
sister six skin sky sleep slice slow small smart smile smoke snail snake snow soap soccer sock soft soil soldier song soup south space spark
speak spice spider spoon spring square squirrel stable stage stair star station steam stone storm story stove straight stranger strawberry
stream street strong student sugar summer sun sunset surprise swan sweet swim table tail tailor tea teacher team tennis tensor tent thank
theater thick thin thing thirty throat thumb thunder ticket tiger time tiny toast today toe tomato tomorrow tongue tooth top towel tower
town toy track train travel tray tree triangle truck trumpet trust tulip tunnel turkey turtle twelve twenty twin umbrella uncle under
uniform useful valley value vase vector vegetable velvet village violin visit voice volcano wagon walk wall walnut warm wash watch water
wave weather week west whale wheat wheel whisper white wide wild window wing winter wise wolf wonder wood wool word work world worm write
yard year yellow yesterday young zebra zero zipper
""".split()

NAMES = """
Anna Ben Clara David Emma Felix Grace Henry Ida Jack Karen Leo Maria Noah Olga Peter Quinn Rosa Sam Tina Uma Victor Wendy Xavi Yara Zoe
Adam Bella Carlos Diana Elias Fiona George Hanna Ivan Julia Kevin Laura Mark Nina Oscar Paula Rita Simon Tom Ursula Vera Walter Ali Bao
Chen Dmitri Eva Farid Gita Hugo Ines Jonas Kofi Lena Mei Nadia Omar Priya Rafael Sofia Tariq Yuki Alex Beth Chris Dora Eric Frida Gus
""".split()

COUNTRIES = """
France Germany Italy Spain Japan China India Brazil Canada Mexico Egypt Kenya Norway Sweden Finland Denmark Poland Portugal Greece Turkey
Russia Ukraine Austria Hungary Ireland Iceland Belgium Peru Chile Argentina Colombia Cuba Vietnam Thailand Indonesia Australia Nigeria
Ghana Morocco Ethiopia Iran Iraq Israel Jordan Nepal Mongolia Romania Bulgaria Croatia Serbia Scotland England Wales Switzerland
""".split()

CITIES = """
Paris London Berlin Rome Madrid Tokyo Beijing Delhi Cairo Nairobi Oslo Stockholm Helsinki Warsaw Lisbon Athens Istanbul Moscow Vienna
Budapest Dublin Brussels Lima Santiago Bogota Havana Hanoi Bangkok Sydney Lagos Accra Boston Chicago Denver Seattle Houston Toronto
Munich Hamburg Milan Naples Barcelona Lyon Geneva Zurich Prague Osaka Shanghai Mumbai Dallas Miami Phoenix Detroit
""".split()

PEOPLE = """
Napoleon|Einstein|Shakespeare|Mozart|Beethoven|Cleopatra|Gandhi|Newton|Darwin|Marie Curie|Picasso|Aristotle|Plato|Columbus|Lincoln|
Washington|Julius Caesar|Galileo|Leonardo da Vinci|Michelangelo|Bach|Goethe|Tolstoy|Socrates|Alexander the Great|Tesla|Edison|Turing|
Ada Lovelace|Van Gogh|Rembrandt|Kant|Nietzsche|Marco Polo|Joan of Arc|Queen Victoria|Elvis|Chopin|Homer|Confucius|Linus Torvalds|
Steve Jobs|Bill Gates|Grace Hopper|the president|the pope|the king of Spain|the prime minister|the queen of England
""".replace("\n", "").split("|")

# Things outside of what the model knows: the fillers of the declined questions.
TOPICS = """
photosynthesis|gravity|evolution|democracy|inflation|the stock market|the French Revolution|the Roman Empire|quantum physics|relativity|
black holes|the big bang|DNA|a virus|vitamins|cholesterol|the immune system|climate change|the greenhouse effect|plate tectonics|
volcanoes|earthquakes|tornadoes|the water cycle|the solar system|Mars|Jupiter|Saturn|the moon landing|a comet|dark matter|a neutron star|
philosophy|stoicism|buddhism|islam|christianity|karma|yoga|meditation|chess|poker|football|cricket|baseball|basketball|tennis|golf|rugby|
the Olympics|the World Cup|the Super Bowl|opera|jazz|ballet|impressionism|baroque music|hip hop|the Beatles|the Mona Lisa|the Bible|
Harry Potter|Star Wars|Hamlet|Moby Dick|the Odyssey|a sonnet|a haiku|a novel|a metaphor|grammar|a verb|an adjective|Latin|Esperanto|Klingon|
blockchain|Bitcoin|Ethereum|a mortgage|insurance|taxes|a pension|interest rates|economics|capitalism|socialism|marketing|a startup|
sourdough|pizza|sushi|lasagna|a croissant|pancakes|chocolate|coffee|green tea|wine|whisky|beer|olive oil|cinnamon|garlic bread|ramen|tacos|
a sofa|a bicycle|a diesel engine|a jet engine|a nuclear reactor|solar panels|a wind turbine|a battery|electricity|magnetism|a laser|
a telescope|a microscope|radar|GPS|Wi-Fi|Bluetooth|5G|a router|a printer|a keyboard|an iPhone|Android|a smart watch|a drone|a rocket|
Python|JavaScript|Rust|Java|Haskell|COBOL|Perl|Ruby|PHP|Kotlin|Swift|TypeScript|HTML|CSS|SQL|a database|PostgreSQL|MongoDB|Redis|Docker|
Kubernetes|Git|GitHub|Linux|Windows|macOS|Ubuntu|Debian|Emacs|Vim|Photoshop|Excel|Word|PowerPoint|Blender|Unity|Unreal|React|Django|
TensorFlow|Keras|scikit-learn|pandas|matplotlib|Spark|Hadoop|Kafka|GraphQL|REST|TCP|UDP|HTTP|DNS|TLS|SSH|IPv6|a firewall|a VPN|a compiler|
a linked list|a hash table|quicksort|a binary tree|recursion|a deadlock|a semaphore|garbage collection|a closure|a monad|a pointer|
LoRA|RLHF|diffusion models|a GAN|reinforcement learning|backpropagation|gradient descent|dropout|batch normalization|a convolution|an RNN|
an LSTM|BERT|GPT|Gemini|Claude|Whisper|Stable Diffusion|word2vec|a support vector machine|a decision tree|random forests|k-means|
a dinosaur|a unicorn|a penguin|a tiger|an octopus|a whale|a spider|a mosquito|a bee|a cactus|an oak tree|a rose|mushrooms|algae|coral|
the heart|the liver|the brain|a migraine|a cold|the flu|diabetes|cancer|asthma|malaria|penicillin|aspirin|a vaccine|surgery|a dentist|
love|happiness|freedom|justice|beauty|truth|time|death|the soul|consciousness|art|culture|history|geography|biology|chemistry|astronomy|
geometry|algebra|calculus|trigonometry|statistics|probability|a prime number|a fraction|a logarithm|pi|infinity|a derivative|an integral|
a passport|a visa|the United Nations|NATO|the European Union|a constitution|parliament|a lawyer|a contract|copyright|a patent|a tariff|
the Eiffel Tower|the Great Wall|the pyramids|Mount Everest|the Amazon|the Nile|the Sahara|Antarctica|the Pacific|the Alps|Niagara Falls|
knitting|gardening|fishing|sailing|skiing|surfing|hiking|camping|cooking|baking|painting|photography|origami|carpentry|plumbing|welding|
sleep|exercise|a diet|calories|protein|yoga poses|stretching|a marathon|weight lifting|swimming|karate|judo|boxing|fencing|archery|
the weather|the news|the lottery|horoscopes|astrology|tarot|ghosts|aliens|UFOs|vampires|dragons|Santa Claus|Atlantis|Bigfoot|time travel|
a ukulele|a violin|a piano|a saxophone|drums|a guitar chord|a symphony|karaoke|a podcast|television|Netflix|YouTube|TikTok|Twitter|Facebook
""".replace("\n", "").split("|")

# Names close to the project that it says nothing about.
NEAR = """
the Vibrant logo|the Vibrant roadmap|the Vibrant forum|the Vibrant mascot|the Vibrant Discord server|the Vibrant newsletter|
the Vibrant foundation|the Vibrant cloud|the Vibrant store|the Vibrant app|the Vibrant conference|the Vibrant subscription|
Vibrant Pro|Vibrant Enterprise|Vibrant 7|Vibrant Studio|Vibrant Mobile|the Vibrant web interface|the Vibrant plugin system
""".replace("\n", "").split("|")

TOOLS = """
PyTorch|TensorFlow|JAX|Docker|Kubernetes|Ollama|LM Studio|vLLM|Node.js|PostgreSQL|Blender|Photoshop|Steam|Chrome|Firefox|Excel|Postfix|
Nginx|Apache|MySQL|Redis|Jenkins|Ansible|Terraform|Visual Studio|Eclipse|Gimp|OBS|Zoom|Slack|Spotify|Minecraft|Windows 11|Ubuntu|Arch Linux|
a printer driver|Wi-Fi|a mail server|WordPress|Rust|Java|R|Julia|Haskell|Qt|LaTeX|Emacs|a VPN|Bluetooth|FFmpeg|OpenCV|Vulkan
""".replace("\n", "").split("|")

ACTIVITIES = """
bake a cake|cook rice|make pancakes|boil an egg|fry an egg|make coffee|grow tomatoes|plant a tree|fix a bike|change a tire|repair a car|
paint a wall|build a house|build a table|fold a paper plane|tie a tie|tie my shoes|learn guitar|play the piano|play chess|win at poker|
lose weight|gain muscle|run a marathon|learn to swim|ride a horse|ski|surf|sleep better|stop smoking|quit my job|find a job|
write a resume|write a novel|write a poem|write a letter|get rich|save money|buy a house|sell my car|file my taxes|open a bank account|
learn French|learn Spanish|speak Chinese|read faster|study for an exam|get a visa|travel to Japan|book a flight|book a hotel|rent a car|
train a dog|feed a cat|wash a sweater|iron a shirt|remove a stain|clean an oven|unclog a sink|fix a leaking tap|hang a picture|
cut my hair|shave|cure a cold|treat a burn|stop a headache|get a girlfriend|make friends|plan a wedding|raise a child|knit a scarf|
sew a button|take good photos|edit a video|start a blog|become famous|become a pilot|fly a plane|drive a truck|sail a boat|catch a fish|
hack a website|crack a password|make a website|center a div|write a web server|parse XML|sort an array in Java|reverse a linked list|
connect to a database|send an email|install a printer|reset my router|root my phone|speed up my laptop|build a computer|overclock my CPU
""".replace("\n", "").split("|")

# Words of the project, to be spelled like any others.
PROJECT = "vibrant cuda tensor kernel token gguf softmax prompt model matrix device stream graph memory layer weight cache batch context seed logits driver compiler quant attention nvidia linux golang ollama llama qwen chat bench devices inspect".split()
