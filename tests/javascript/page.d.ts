// The elements of serve/page/index.html that have more than every element has.
interface PageElements {
  form: HTMLFormElement
  "add-form": HTMLFormElement
  wave: HTMLCanvasElement
  text: HTMLTextAreaElement
  transcript: HTMLTextAreaElement
  level: HTMLMeterElement
  format: HTMLSelectElement
  language: HTMLSelectElement
  "language-of-code": HTMLSelectElement
  "best-part": HTMLInputElement
  consent: HTMLInputElement
  file: HTMLInputElement
  groups: HTMLInputElement
  instructions: HTMLInputElement
  key: HTMLInputElement
  search: HTMLInputElement
  seed: HTMLInputElement
  seek: HTMLInputElement
  speed: HTMLInputElement
  "voice-file": HTMLInputElement
  "voice-name": HTMLInputElement
  volume: HTMLInputElement
  "add-voice": HTMLButtonElement
  download: HTMLButtonElement
  play: HTMLButtonElement
  replay: HTMLButtonElement
  stop: HTMLButtonElement
}

type ElementOf<Id extends string> = Id extends keyof PageElements ? PageElements[Id] : HTMLElement
